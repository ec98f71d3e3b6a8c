import type { Socket } from "node:net";

const http2Preface = Buffer.from("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "latin1");

/**
 * Reads just enough of a fresh connection to tell HTTP/2 with prior knowledge from HTTP/1.1, puts the bytes back and
 * calls `decided` once. A connection that stays undecided for `timeoutMs`, or ends undecided, is destroyed.
 */
export function sniffProtocol(socket: Socket, timeoutMs: number, decided: (protocol: "http1" | "http2") => void): void {
  let seen: Buffer = Buffer.alloc(0);
  const timer = setTimeout(() => socket.destroy(), timeoutMs);
  const stop = (): void => {
    clearTimeout(timer);
    socket.off("readable", look);
    socket.off("end", giveUp);
    socket.off("close", stop);
  };
  const giveUp = (): void => {
    stop();
    socket.destroy();
  };
  const look = (): void => {
    for (let bytes: Buffer | null = socket.read(); bytes !== null; bytes = socket.read()) {
      seen = seen.length === 0 ? bytes : Buffer.concat([seen, bytes]);
    }
    const length = Math.min(seen.length, http2Preface.length);
    const isPrefix = http2Preface.compare(seen, 0, length, 0, length) === 0;
    // Bytes go back only with the verdict: put back earlier they would be readable again at once, and for ever.
    if (isPrefix && length < http2Preface.length) return;
    stop();
    socket.unshift(seen);
    decided(isPrefix ? "http2" : "http1");
  };
  socket.on("readable", look);
  socket.on("end", giveUp);
  socket.on("close", stop);
}
