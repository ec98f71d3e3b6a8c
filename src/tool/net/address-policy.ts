import { lookup } from "node:dns/promises";
import { isIP } from "node:net";
import { networkInterfaces } from "node:os";
import ipaddr from "ipaddr.js";

/** Finds the addresses of a host name, as texts. Fails where it has none. */
export type ResolveHost = (hostname: string) => Promise<readonly string[]>;

/** Thrown for a URL that may not be asked; the message names the rule, never what is there. */
export class RefusedUrl extends Error {
  override readonly name = "RefusedUrl";
}

export interface AddressPolicyOptions {
  /** What may be reached besides the public internet: host names, addresses and networks, each with or without `:port`. */
  readonly allow?: readonly string[];
  /** Default: the system's resolver. */
  readonly resolve?: ResolveHost;
  /** Addresses of this machine, which are refused also where they are public; default: those of its interfaces. */
  readonly ownAddresses?: () => readonly string[];
}

/** Says what our own requests may reach. */
export interface AddressPolicy {
  /**
   * Reads a URL and judges all that can be judged without asking for addresses.
   * @throws {RefusedUrl} for anything but http and https, with a user or a password in it, or to a port of another protocol.
   */
  checkUrl(url: string | URL): URL;
  /**
   * The addresses a connection for this URL may be made to, resolved once. A connection has to go to one of these
   * and nowhere else: asking for the name again may give others.
   * @throws {RefusedUrl} when the name has no address or one of them may not be reached.
   */
  addressesFor(url: URL): Promise<readonly string[]>;
}

type Address = ipaddr.IPv4 | ipaddr.IPv6;

interface Allowed {
  /** A name in small letters, or a network. */
  readonly host: string | readonly [Address, number];
  /** Any where absent. */
  readonly port: number | undefined;
}

/** What a name that was allowed never stands for: these have to be allowed as addresses. */
const neverByName: ReadonlySet<string> = new Set(["link-local", "metadata", "multicast", "broadcast", "unspecified"]);

const metadataAddresses: ReadonlySet<string> = new Set([
  "169.254.169.254",
  "169.254.170.2",
  "168.63.129.16",
  "100.100.100.200",
  "192.0.0.192",
  "fd00:ec2::254",
  "fd20:ce::254",
]);

/** Ports of services that act on lines they do not understand as HTTP; a part of the bad ports of the Fetch standard. */
const otherProtocols: ReadonlySet<number> = new Set([
  0, 1, 7, 9, 11, 13, 15, 17, 19, 20, 21, 22, 23, 25, 37, 42, 43, 53, 69, 77, 79, 87, 95, 101, 102, 103, 104, 109, 110,
  111, 113, 115, 117, 119, 123, 135, 137, 139, 143, 161, 179, 389, 427, 445, 465, 512, 513, 514, 515, 526, 530, 531,
  532, 540, 548, 554, 556, 563, 587, 601, 636, 989, 990, 993, 995, 1719, 1720, 1723, 2049, 3306, 3659, 4045, 4190, 5060,
  5061, 5432, 6000, 6379, 6566, 6665, 6666, 6667, 6668, 6669, 6679, 6697, 10080, 11211, 27017,
]);

const maxUrlCharacters = 8192;

/**
 * The policy for requests that models or strangers can steer: the public internet, and what `allow` names.
 * @throws {Error} one sentence about an entry of `allow` that cannot be read.
 */
export function addressPolicy(options: AddressPolicyOptions = {}): AddressPolicy {
  const allowed = (options.allow ?? []).map(readAllowed);
  const { resolve = resolveBySystem, ownAddresses = interfaceAddresses } = options;
  return {
    checkUrl(given) {
      const url = readUrl(given);
      const port = portOf(url);
      if (otherProtocols.has(port) && !allowed.some((entry) => entry.port === port))
        throw new RefusedUrl(`port ${port} may not be asked: it belongs to another protocol than HTTP`);
      return url;
    },
    async addressesFor(url) {
      const host = hostOf(url);
      const port = portOf(url);
      const literal = isIP(host) !== 0;
      const found = literal ? [host] : await resolve(host);
      const addresses = found.map(parsed);
      if (addresses.length === 0) throw new RefusedUrl(`${host} has no address`);
      const own = new Set(ownAddresses().map((address) => parsed(address)?.toString()));
      for (const address of addresses) {
        const fault = address === undefined ? "an address of an unknown kind" : faultOf(address, own);
        if (fault === undefined || (address !== undefined && isAllowed(allowed, host, port, address, fault))) continue;
        const what = literal ? `${host} is` : `${host} stands for`;
        throw new RefusedUrl(`${what} ${wordsFor(fault)}, which may not be reached; net.allow can name it`);
      }
      return [...new Set(addresses.flatMap((address) => (address === undefined ? [] : [address.toString()])))];
    },
  };
}

function wordsFor(fault: string): string {
  if (fault.startsWith("an ")) return fault;
  return `${/^[aeiou]/.test(fault) ? "an" : "a"} ${fault} address`;
}

function readUrl(given: string | URL): URL {
  const text = String(given);
  if (text.length > maxUrlCharacters)
    throw new RefusedUrl(`the URL has ${text.length} characters; at most ${maxUrlCharacters} are taken`);
  const url = URL.parse(text);
  if (url === null) throw new RefusedUrl("this is not a URL; one like https://example.org/path is wanted");
  if (url.protocol !== "http:" && url.protocol !== "https:")
    throw new RefusedUrl(`URLs with ${url.protocol} are not taken; http: or https: is wanted`);
  if (url.username !== "" || url.password !== "")
    throw new RefusedUrl("URLs with a user or a password are not taken; leave out what stands before the @");
  return url;
}

/** A URL's host without brackets and without the dot that may end a name. */
function hostOf(url: URL): string {
  const host = url.hostname.replace(/^\[(.*)\]$/, "$1");
  return isIP(host) === 0 ? host.toLowerCase().replace(/\.$/, "") : host;
}

function portOf(url: URL): number {
  return url.port === "" ? (url.protocol === "https:" ? 443 : 80) : Number(url.port);
}

/** The one way to write an address; undefined for what is none. */
export function plainAddress(text: string): string | undefined {
  return parsed(text)?.toString();
}

/** An address in its plain form, IPv4 where it is IPv4 in the clothes of IPv6; undefined for what is none. */
function parsed(text: string): Address | undefined {
  if (isIP(text) === 0 || text.includes("%")) return undefined;
  const address = ipaddr.parse(text);
  return address instanceof ipaddr.IPv6 && address.isIPv4MappedAddress() ? address.toIPv4Address() : address;
}

const globalUnicast = ipaddr.IPv6.parseCIDR("2000::/3");
const nat64 = ipaddr.IPv6.parseCIDR("64:ff9b::/96");
const compatible = ipaddr.IPv6.parseCIDR("::/96");

const plainWords: Readonly<Record<string, string>> = {
  loopback: "loopback",
  private: "private",
  uniqueLocal: "private",
  linkLocal: "link-local",
  carrierGradeNat: "shared (carrier-grade NAT)",
  unspecified: "unspecified",
  multicast: "multicast",
  broadcast: "broadcast",
};

/** Why an address is not of the public internet, as a word before "address"; undefined when it is. */
function faultOf(address: Address, own: ReadonlySet<string | undefined>): string | undefined {
  if (metadataAddresses.has(address.toString())) return "metadata";
  if (own.has(address.toString())) return plainWords[address.range()] ?? "an address of this machine";
  const range = address.range();
  if (address instanceof ipaddr.IPv4) return range === "unicast" ? undefined : (plainWords[range] ?? "reserved");
  // Only these two forms mean the IPv4 address that is in them; a tunnel's exit or an old form is wanted by nobody.
  if (address.match(nat64)) return faultOf(lastFour(address), own);
  if (plainWords[range] !== undefined) return plainWords[range];
  if (address.match(compatible)) return faultOf(lastFour(address), own) ?? "reserved";
  return range === "unicast" && address.match(globalUnicast) ? undefined : "reserved";
}

function lastFour(address: ipaddr.IPv6): ipaddr.IPv4 {
  return new ipaddr.IPv4(address.toByteArray().slice(12));
}

function isAllowed(allowed: readonly Allowed[], name: string, port: number, address: Address, fault: string): boolean {
  return allowed.some((entry) => {
    if (entry.port !== undefined && entry.port !== port) return false;
    if (typeof entry.host === "string") return entry.host === name && !neverByName.has(fault);
    const [network, bits] = entry.host;
    return network.kind() === address.kind() && address.match(network, bits);
  });
}

/**
 * Reads an entry of the list of what may be reached.
 * @throws {Error} one sentence that says what is wanted.
 */
export function readAllowed(text: string): Allowed {
  const wanted = `${JSON.stringify(text)}: a host name, an address or a network (10.1.0.0/16) is wanted, with or without :port`;
  const ported =
    /^\[(?<inner>[^\]]+)\](?::(?<port>\d{1,5}))?$/.exec(text) ?? /^(?<inner>[^:]+)(?::(?<port>\d{1,5}))?$/.exec(text);
  const inner = ported?.groups?.["inner"] ?? text;
  const portText = ported?.groups?.["port"];
  const port = portText === undefined ? undefined : Number(portText);
  if (port !== undefined && (port < 1 || port > 65_535)) throw new Error(wanted);
  const [base = "", bits] = inner.split("/");
  if (isIP(base) !== 0 && !base.includes("%")) {
    const isMapped = isIP(base) === 6 && ipaddr.IPv6.parse(base).isIPv4MappedAddress();
    const most = isIP(base) === 4 ? 32 : 128;
    const length = bits === undefined ? most : /^\d{1,3}$/.test(bits) ? Number(bits) : -1;
    const own = isMapped ? length - 96 : length;
    const network = parsed(base);
    if (network === undefined || own < 0 || length > most) throw new Error(wanted);
    return { host: [network, own], port };
  }
  const name = inner.toLowerCase().replace(/\.$/, "");
  if (!/^[a-z0-9_-]+(?:\.[a-z0-9_-]+)*$/.test(name) || URL.parse(`http://${name}/`)?.hostname !== name)
    throw new Error(wanted);
  return { host: name, port };
}

const resolveBySystem: ResolveHost = async (hostname) => {
  const found = await lookup(hostname, { all: true }).catch(() => []);
  return found.map(({ address }) => address);
};

function interfaceAddresses(): string[] {
  return Object.values(networkInterfaces()).flatMap((list) =>
    (list ?? []).map(({ address }) => address.split("%", 1)[0] ?? ""),
  );
}
