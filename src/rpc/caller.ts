import type { Principal } from "../session/sessions.ts";

/** Everybody who gets past the door is the same caller: the one the token, or the loopback address, stands for. */
export const theCaller: Principal = { tenant: "default", name: "local" };
