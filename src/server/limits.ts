/** What one client, or all of them together, may cost the server. Sizes are bytes, times milliseconds, counts plain numbers. */
export interface ServerLimits {
  /** Largest message a client may send, after decompression. */
  readMaxBytes: number;
  /** Largest message a handler may send, before compression. */
  writeMaxBytes: number;
  /** All header fields of one request together, names included. */
  headerBytes: number;
  /** Header fields of one request. HTTP/2 counts its pseudo fields too. */
  headerPairs: number;
  /** Open connections in all. */
  connections: number;
  /** Open connections from one remote address; addresses of this machine are not counted. */
  connectionsPerAddress: number;
  /** Time a new connection has to show its protocol: first bytes in the clear, the handshake with TLS. */
  sniffTimeoutMs: number;
  /** Time an HTTP/1.1 request has for its header fields. */
  headersTimeoutMs: number;
  /** Time a request has to arrive whole, unless the method takes a stream of messages. */
  bodyTimeoutMs: number;
  /** Silence between two HTTP/1.1 requests of one connection. */
  keepAliveTimeoutMs: number;
  /** Silence after which an HTTP/2 session without a stream is closed, and one with a stream must answer a ping. */
  sessionIdleTimeoutMs: number;
  /** Time for the answer to that ping, and for the peer to hang up after a farewell. */
  pingTimeoutMs: number;
  /** How long bytes may wait for a reader who takes none of them. */
  stalledReaderTimeoutMs: number;
  /** The longest deadline a caller gets; a longer wish is shortened to this. */
  callTimeoutMs: number;
  /** Time aborted calls have for their last message before their connection is cut. */
  lastWordsTimeoutMs: number;
  /** Streams one HTTP/2 session may have open at once. */
  concurrentStreams: number;
  /** HTTP/2 flow-control window of one stream. */
  streamWindowBytes: number;
  /** Memory one HTTP/2 session may hold, in megabytes (Node's unit for it). */
  sessionMemoryMb: number;
  /** Invalid frames an HTTP/2 session survives. */
  sessionInvalidFrames: number;
  /** Streams refused at creation an HTTP/2 session survives. */
  sessionRejectedStreams: number;
  /** Entries in one HTTP/2 SETTINGS frame. */
  settings: number;
  /** Unanswered HTTP/2 pings. */
  outstandingPings: number;
  /** Stream resets an HTTP/2 session may spend at once, */
  streamResetBurst: number;
  /** and how many it earns back each second. */
  streamResetRate: number;
}

export const defaultServerLimits: Readonly<ServerLimits> = {
  readMaxBytes: 16 * 1024 * 1024,
  writeMaxBytes: 16 * 1024 * 1024,
  headerBytes: 16 * 1024,
  headerPairs: 100,
  connections: 2_048,
  connectionsPerAddress: 64,
  sniffTimeoutMs: 10_000,
  headersTimeoutMs: 10_000,
  bodyTimeoutMs: 30_000,
  keepAliveTimeoutMs: 15_000,
  sessionIdleTimeoutMs: 5 * 60_000,
  pingTimeoutMs: 10_000,
  stalledReaderTimeoutMs: 60_000,
  callTimeoutMs: 60 * 60_000,
  lastWordsTimeoutMs: 1_000,
  concurrentStreams: 100,
  streamWindowBytes: 64 * 1024 - 1,
  sessionMemoryMb: 10,
  sessionInvalidFrames: 50,
  sessionRejectedStreams: 50,
  settings: 32,
  outstandingPings: 10,
  streamResetBurst: 200,
  streamResetRate: 20,
};
