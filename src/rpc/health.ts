import { Code, ConnectError, type ServiceImpl } from "@connectrpc/connect";
import { type Health, HealthCheckResponse_ServingStatus as ServingStatus } from "../../gen/grpc/health/v1/health_pb.ts";

export { ServingStatus };

/** Which services are able to serve. The empty name stands for the server as a whole. */
export interface HealthRegistry {
  /** Sets a service's status. Does nothing once draining. */
  set(service: string, status: ServingStatus): void;
  /** The status, or undefined for a service nobody has set. */
  get(service: string): ServingStatus | undefined;
  list(): ReadonlyMap<string, ServingStatus>;
  /** Everything is NOT_SERVING from here on; watchers are told and their streams end. */
  drain(): void;
  readonly draining: boolean;
  /** Resolves at the next change of any service, or when the signal aborts. */
  changed(signal: AbortSignal): Promise<void>;
}

/** A registry in which the server as a whole is SERVING. */
export function createHealthRegistry(): HealthRegistry {
  const statuses = new Map<string, ServingStatus>([["", ServingStatus.SERVING]]);
  let waiting = new Set<() => void>();
  let draining = false;
  const tell = (): void => {
    const told = waiting;
    waiting = new Set();
    for (const wake of told) wake();
  };
  return {
    set(service, status) {
      if (draining || statuses.get(service) === status) return;
      statuses.set(service, status);
      tell();
    },
    get: (service) => statuses.get(service),
    list: () => statuses,
    drain() {
      draining = true;
      for (const service of statuses.keys()) statuses.set(service, ServingStatus.NOT_SERVING);
      tell();
    },
    get draining() {
      return draining;
    },
    changed(signal) {
      const { promise, resolve } = Promise.withResolvers<void>();
      if (signal.aborted) return Promise.resolve();
      const wake = (): void => {
        waiting.delete(wake);
        signal.removeEventListener("abort", wake);
        resolve();
      };
      waiting.add(wake);
      signal.addEventListener("abort", wake);
      return promise;
    },
  };
}

/** grpc.health.v1.Health over a registry. A watcher sees the latest status, not every one in between. */
export function healthService(registry: HealthRegistry): ServiceImpl<typeof Health> {
  return {
    check({ service }) {
      const status = registry.get(service);
      if (status === undefined) throw new ConnectError("the health of this service is not known", Code.NotFound);
      return { status };
    },
    list() {
      const statuses = Object.fromEntries([...registry.list()].map(([service, status]) => [service, { status }]));
      return { statuses };
    },
    async *watch({ service }, { signal }) {
      let told: ServingStatus | undefined;
      for (;;) {
        const status = registry.get(service) ?? ServingStatus.SERVICE_UNKNOWN;
        if (status !== told) {
          told = status;
          yield { status };
          continue; // The status may have changed while the reader took this one.
        }
        if (registry.draining) return;
        await registry.changed(signal);
        signal.throwIfAborted();
      }
    },
  };
}
