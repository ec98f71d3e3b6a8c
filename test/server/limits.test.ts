import assert from "node:assert/strict";
import { once } from "node:events";
import http2 from "node:http2";
import { connect, type Socket } from "node:net";
import { describe, test } from "node:test";
import {
  checkPath,
  checkRequest,
  exchange,
  http2Request,
  readToEnd,
  startTestServer,
  watchPath,
} from "./start-test-server.ts";

const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

async function assertAnswers(port: number): Promise<void> {
  assert.match(await exchange(port, checkRequest({ Host: "localhost" })), /^HTTP\/1.1 200 /);
}

function open(port: number, text: string): { socket: Socket; closed: Promise<string> } {
  const socket = connect(port, "127.0.0.1");
  const closed = readToEnd(socket);
  if (text !== "") socket.write(text);
  return { socket, closed };
}

describe("who stalls is cut off and holds up nobody", { timeout: 30_000 }, () => {
  test("peers that send part of the HTTP/2 preface do not hang the others", async () => {
    await using server = await startTestServer();
    const stuck = ["P", "PR", "PRI * HTTP/2.0\r\n", preface.slice(0, -1)].map((text) => open(server.port, text));
    await Promise.all(stuck.map(({ socket }) => once(socket, "connect")));
    await assertAnswers(server.port);
    await assertAnswers(server.port);
    for (const { socket } of stuck) socket.destroy();
  });

  test("a request that comes byte by byte is read", async () => {
    await using server = await startTestServer();
    const { socket, closed } = open(server.port, "");
    socket.setNoDelay(true);
    for (const byte of checkRequest({ Host: "localhost" })) {
      socket.write(byte);
      await new Promise(setImmediate);
    }
    assert.match(await closed, /^HTTP\/1.1 200 /);
  });

  test("a POST is not taken for the preface it shares its first letter with", async () => {
    await using server = await startTestServer();
    const { socket, closed } = open(server.port, "P");
    await once(socket, "connect");
    await assertAnswers(server.port);
    socket.write(checkRequest({ Host: "localhost" }).slice(1));
    assert.match(await closed, /^HTTP\/1.1 200 /);
  });

  const silent: [name: string, text: string, answer: RegExp][] = [
    ["a silent connection", "", /^$/],
    ["a preface that stays half", "PRI * HT", /^$/],
    ["a request line that stays half", "GET / HT", /^HTTP\/1.1 408 /],
    ["header fields that never end", "GET / HTTP/1.1\r\nHost: localhost\r\nX-Slow: ", /^HTTP\/1.1 408 /],
    [
      "a body that never comes",
      checkRequest({ Host: "localhost", "Content-Length": "100", Connection: undefined }),
      /^HTTP\/1.1 408 /,
    ],
    ["an idle kept connection", checkRequest({ Host: "localhost", Connection: undefined }), /^HTTP\/1.1 200 /],
    ["an HTTP/2 session without a word", preface, /./],
  ];
  for (const [name, text, answer] of silent) {
    test(`${name} is closed`, async () => {
      await using server = await startTestServer({
        limits: {
          sniffTimeoutMs: 200,
          headersTimeoutMs: 200,
          bodyTimeoutMs: 400,
          keepAliveTimeoutMs: 100,
          sessionIdleTimeoutMs: 200,
          pingTimeoutMs: 200,
        },
      });
      assert.match(await open(server.port, text).closed, answer);
      await assertAnswers(server.port);
    });
  }

  test("an HTTP/2 body that never ends is cut, an endless answer is not", async () => {
    await using server = await startTestServer({ limits: { bodyTimeoutMs: 200 } });
    const session = http2.connect(server.url);
    const headers = { ":method": "POST", "content-type": "application/grpc", te: "trailers" };
    const watch = session.request({ ...headers, ":path": watchPath });
    watch.end(new Uint8Array(5));
    await once(watch, "data");
    const slow = session.request({ ...headers, ":path": checkPath });
    slow.on("error", () => {});
    slow.write(new Uint8Array(3));
    await once(slow, "close");
    assert.equal(slow.rstCode, http2.constants.NGHTTP2_CANCEL);
    assert.equal(watch.closed, false);
    session.destroy();
  });

  test("an HTTP/2 session that answers pings may listen on in silence", async () => {
    await using server = await startTestServer({ limits: { sessionIdleTimeoutMs: 50, pingTimeoutMs: 100 } });
    const session = http2.connect(server.url);
    const watch = session.request({ ":method": "POST", ":path": watchPath, "content-type": "application/grpc" });
    watch.end(new Uint8Array(5));
    await once(watch, "data");
    for (let pings = 0; pings < 4; pings++) await once(session, "ping");
    assert.equal(watch.closed, false);
    session.destroy();
  });

  for (const [name, isHttp2] of [
    ["HTTP/1.1", false],
    ["HTTP/2", true],
  ] as const) {
    test(`a reader over ${name} who takes nothing is cut`, async () => {
      const gone = Promise.withResolvers<void>();
      await using server = await startTestServer({
        limits: { stalledReaderTimeoutMs: 200, lastWordsTimeoutMs: 50 },
        fallback: (_, response) => {
          response.once("close", () => gone.resolve());
          response.write(Buffer.alloc(32 * 1024 * 1024));
        },
      });
      if (isHttp2) {
        const session = http2.connect(server.url);
        session.on("error", () => {});
        const stream = session.request({ ":path": "/flood" });
        stream.on("error", () => {});
        await once(stream, "response");
        await gone.promise;
        session.destroy();
      } else {
        const socket = connect(server.port, "127.0.0.1");
        socket.on("error", () => {});
        socket.pause();
        socket.write("GET /flood HTTP/1.1\r\nHost: localhost\r\n\r\n");
        await gone.promise;
        socket.destroy();
      }
    });
  }

  test("a handler who thinks longer than a reader may stall is waited for", async () => {
    await using server = await startTestServer({
      limits: { stalledReaderTimeoutMs: 50, keepAliveTimeoutMs: 50 },
      fallback: (_, response) => void setTimeout(() => response.end("thought"), 400),
    });
    assert.equal(await (await fetch(`${server.url}/think`)).text(), "thought");
  });

  test("connections beyond the limit are closed, and taken again when there is room", async () => {
    await using server = await startTestServer({ limits: { connections: 2 } });
    const first = open(server.port, "");
    const second = open(server.port, "");
    await Promise.all([once(first.socket, "connect"), once(second.socket, "connect")]);
    assert.equal(await open(server.port, checkRequest({ Host: "localhost" })).closed, "");
    first.socket.destroy();
    second.socket.destroy();
    await Promise.all([first.closed, second.closed]);
    while (!(await exchange(server.port, checkRequest({ Host: "localhost" }))).startsWith("HTTP/1.1 200")) {
      await new Promise(setImmediate);
    }
  });

  test("HTTP/2 header fields over the limit do not reach a handler", async () => {
    await using server = await startTestServer();
    for (const fields of [
      { "x-big": "x".repeat(20 * 1024) },
      Object.fromEntries(Array.from({ length: 120 }, (_, at) => [`x-${at}`, "1"])),
    ]) {
      const headers = { ":path": checkPath, "content-type": "application/json", ...fields };
      const answer = await http2Request(server.url, headers, Buffer.from("{}")).catch(() => undefined);
      assert.notEqual(answer?.headers[":status"], 200);
    }
    assert.deepEqual(server.handled, []);
    await assertAnswers(server.port);
  });

  test("a session that resets more streams than it may is closed, calls that wait on it end", async () => {
    await using server = await startTestServer({ limits: { streamResetBurst: 10, streamResetRate: 1 } });
    const session = http2.connect(server.url);
    session.on("error", () => {});
    const watch = () => {
      const stream = session.request({ ":method": "POST", ":path": watchPath, "content-type": "application/grpc" });
      stream.on("error", () => {});
      stream.end(Buffer.from([0, 0, 0, 0, 0]));
      return stream;
    };
    const waiting = watch();
    const ended = once(waiting, "close");
    for (let count = 0; count < 20 && !session.destroyed; count++) {
      const stream = watch();
      const closed = once(stream, "close");
      await Promise.race([once(stream, "response"), closed]);
      stream.close(http2.constants.NGHTTP2_CANCEL);
      await closed;
    }
    await ended;
    await assertAnswers(server.port);
  });

  test("a session that opens and resets streams without end is closed", async () => {
    await using server = await startTestServer();
    const session = http2.connect(server.url);
    session.on("error", () => {});
    const closed = new Promise((resolve) => session.once("close", resolve));
    const flood = (): void => {
      if (session.closed || session.destroyed) return;
      for (let count = 0; count < 50; count++) {
        const stream = session.request({ ":method": "POST", ":path": watchPath, "content-type": "application/grpc" });
        stream.on("error", () => {});
        stream.close(http2.constants.NGHTTP2_CANCEL);
      }
      setImmediate(flood);
    };
    session.once("remoteSettings", flood);
    await closed;
    await assertAnswers(server.port);
  });
});
