import { constants, type ServerHttp2Session } from "node:http2";
import type { Socket } from "node:net";
import type { ServerLimits } from "./limits.ts";

/**
 * Keeps one HTTP/2 session from outstaying its welcome: closes it when it idles without a stream, cuts it when it does
 * not answer a ping or resets its streams faster than it may, and cuts a stream whose reader takes nothing.
 * @param socket the connection under the session; the session's own `socket` cannot be destroyed.
 */
export function watchSession(session: ServerHttp2Session, socket: Socket, limits: ServerLimits): void {
  let openStreams = 0;
  let deadline: NodeJS.Timeout | undefined;
  let resetsLeft = limits.streamResetBurst;
  let countedMs = performance.now();
  /** The guard of HTTP/2 itself gives the session up without closing it: calls of its other streams would hang. */
  const countReset = (): void => {
    const nowMs = performance.now();
    const earned = ((nowMs - countedMs) / 1000) * limits.streamResetRate;
    resetsLeft = Math.min(limits.streamResetBurst, resetsLeft + earned) - 1;
    countedMs = nowMs;
    if (resetsLeft < 0) socket.destroy();
  };
  session.on("stream", (stream) => {
    openStreams++;
    stream.setTimeout(limits.stalledReaderTimeoutMs);
    stream.on("timeout", () => {
      if (stream.writableLength > 0) stream.close(constants.NGHTTP2_CANCEL);
      else stream.setTimeout(limits.stalledReaderTimeoutMs);
    });
    stream.once("close", () => {
      openStreams--;
      if (stream.rstCode !== constants.NGHTTP2_NO_ERROR) countReset();
    });
  });
  session.setTimeout(limits.sessionIdleTimeoutMs);
  session.on("timeout", () => {
    if (session.closed || session.destroyed) return;
    clearTimeout(deadline);
    deadline = setTimeout(() => socket.destroy(), limits.pingTimeoutMs);
    if (openStreams === 0) {
      // Says goodbye; the deadline is for a peer that does not hang up.
      session.close();
      return;
    }
    session.ping((error) => {
      if (error === null) clearTimeout(deadline);
    });
    session.setTimeout(limits.sessionIdleTimeoutMs);
  });
  socket.once("close", () => clearTimeout(deadline));
}
