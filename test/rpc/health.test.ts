import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { createClient, createRouterTransport } from "@connectrpc/connect";
import { Health } from "../../gen/grpc/health/v1/health_pb.ts";
import { createHealthRegistry, healthService, ServingStatus } from "../../src/rpc/health.ts";

const { SERVING, NOT_SERVING, SERVICE_UNKNOWN } = ServingStatus;

function start() {
  const registry = createHealthRegistry();
  const client = createClient(
    Health,
    createRouterTransport((router) => void router.service(Health, healthService(registry))),
  );
  return { registry, client };
}

describe("health", { timeout: 5_000 }, () => {
  test("lists and checks what was set", async () => {
    const { registry, client } = start();
    registry.set("a.B", NOT_SERVING);
    assert.equal((await client.check({ service: "a.B" })).status, NOT_SERVING);
    const { statuses } = await client.list({});
    assert.deepEqual(
      Object.entries(statuses).map(([service, { status }]) => [service, status]),
      [
        ["", SERVING],
        ["a.B", NOT_SERVING],
      ],
    );
  });

  test("a watcher sees each change once, and the end when the server drains", async () => {
    const { registry, client } = start();
    const seen: ServingStatus[] = [];
    const steps = [
      () => registry.set("a.B", SERVING),
      () => {
        registry.set("other", SERVING);
        registry.set("a.B", SERVING);
        registry.set("a.B", NOT_SERVING);
      },
      () => registry.set("a.B", SERVING),
      () => registry.drain(),
    ];
    for await (const { status } of client.watch({ service: "a.B" })) {
      seen.push(status);
      steps.shift()?.();
    }
    assert.deepEqual(seen, [SERVICE_UNKNOWN, SERVING, NOT_SERVING, SERVING, NOT_SERVING]);
  });

  test("draining is for good", async () => {
    const { registry, client } = start();
    registry.drain();
    registry.set("", SERVING);
    assert.equal((await client.check({})).status, NOT_SERVING);
  });

  test("who stops waiting leaves no listener behind", async () => {
    const registry = createHealthRegistry();
    const stop = new AbortController();
    const waiting = registry.changed(stop.signal);
    stop.abort();
    await waiting;
    await registry.changed(stop.signal);
  });
});
