import { connect, createServer, type Socket } from "node:net";

export interface CuttingProxy {
  readonly url: string;
  /** The authority callers name; a server has to allow it. */
  readonly host: string;
  /** The port of this machine it forwards to. */
  target: number;
  /** Connections cut so far. */
  readonly cuts: number;
  /** What the next connections let through from the server, in bytes, before they are cut; then no more cuts. */
  plan(bytes: readonly number[]): void;
  [Symbol.asyncDispose](): Promise<void>;
}

/** Forwards to `target` and cuts connections after a number of bytes from there. */
export async function startCuttingProxy(): Promise<CuttingProxy> {
  let planned: number[] = [];
  let cuts = 0;
  const sockets = new Set<Socket>();
  const server = createServer((client) => {
    let left = planned.shift() ?? Number.POSITIVE_INFINITY;
    const upstream = connect(proxy.target, "127.0.0.1");
    const end = () => {
      client.destroy();
      upstream.destroy();
    };
    for (const socket of [client, upstream]) {
      sockets.add(socket);
      socket.setNoDelay(true);
      socket.on("error", end);
      socket.on("close", () => {
        sockets.delete(socket);
        end();
      });
    }
    client.on("data", (bytes) => upstream.write(bytes));
    upstream.on("data", (bytes: Buffer) => {
      if (bytes.length <= left) {
        left -= bytes.length;
        client.write(bytes);
        return;
      }
      cuts += 1;
      upstream.destroy();
      client.end(bytes.subarray(0, left));
      left = 0;
    });
  });
  const listening = Promise.withResolvers<void>();
  server.listen(0, "127.0.0.1", listening.resolve);
  await listening.promise;
  const address = server.address();
  if (address === null || typeof address === "string") throw new Error("the proxy has no port");
  const host = `127.0.0.1:${address.port}`;
  const proxy: CuttingProxy = {
    target: 0,
    host,
    url: `http://${host}`,
    get cuts() {
      return cuts;
    },
    plan(bytes) {
      planned = [...bytes];
    },
    async [Symbol.asyncDispose]() {
      const closed = Promise.withResolvers<void>();
      server.close(() => closed.resolve());
      for (const socket of sockets) socket.destroy();
      await closed.promise;
    },
  };
  return proxy;
}
