import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { addressPolicy, RefusedUrl, readAllowed } from "../../../src/tool/net/address-policy.ts";

/** What names stand for; a name that is not here has no address. */
const names: Readonly<Record<string, readonly string[]>> = {
  "example.org": ["93.184.216.34", "2606:2800:220:1:248:1893:25c8:1946"],
  "xn--bcher-kva.example": ["93.184.216.34"],
  "mapped.example": ["::ffff:93.184.216.34"],
  localhost: ["127.0.0.1", "::1"],
  "loop.example": ["127.0.0.1"],
  "loop6.example": ["::1"],
  "mixed.example": ["93.184.216.34", "10.0.0.7"],
  "mixed6.example": ["2606:4700::1111", "fd00::1"],
  "mapped-loop.example": ["::ffff:127.0.0.1"],
  "metadata.example": ["169.254.169.254"],
  "zoned.example": ["fe80::1%eth0"],
  "nonsense.example": ["not an address"],
  "octal.example": ["0177.0.0.1"],
  "own.example": ["93.184.216.99"],
  "empty.example": [],
  "intranet.example": ["10.1.2.3"],
};
const resolve = async (name: string) => names[name] ?? [];
const ownAddresses = () => ["127.0.0.1", "::1", "93.184.216.99"];
const open = addressPolicy({ resolve, ownAddresses });

async function judged(url: string, policy = open): Promise<string> {
  try {
    return (await policy.addressesFor(policy.checkUrl(url))).join(" ");
  } catch (error) {
    assert.ok(error instanceof RefusedUrl, String(error));
    return error.message;
  }
}

const refused: readonly (readonly [url: string, rule: RegExp])[] = [
  ["http://127.0.0.1/", /loopback/],
  ["http://127.255.255.254/", /loopback/],
  ["http://127.0.0.1./", /loopback/],
  ["http://2130706433/", /loopback/],
  ["http://0x7f.1/", /loopback/],
  ["http://0x7f000001/", /loopback/],
  ["http://0177.0.0.1/", /loopback/],
  ["http://017700000001/", /loopback/],
  ["http://127.1/", /loopback/],
  ["http://127.0.1/", /loopback/],
  ["http://%31%32%37.0.0.1/", /loopback/],
  ["http://%6c%6f%63alhost/", /loopback/],
  ["http://①②⑦.0.0.1/", /loopback/],
  ["http://127。0。0。1/", /loopback/],
  ["http://ｌｏｃａｌｈｏｓｔ/", /loopback/],
  ["http://LOCALHOST/", /loopback/],
  ["http://localhost./", /loopback/],
  ["http:127.0.0.1/", /loopback/],
  ["http:\\\\127.0.0.1\\x", /loopback/],
  ["https:/\t/127.0.0.1/", /loopback/],
  ["http://[::1]/", /loopback/],
  ["http://[0:0:0:0:0:0:0:1]/", /loopback/],
  ["http://[::ffff:127.0.0.1]/", /loopback/],
  ["http://[::ffff:7f00:1]/", /loopback/],
  ["http://[0:0:0:0:0:ffff:7f00:1]/", /loopback/],
  ["http://[::127.0.0.1]/", /loopback/],
  ["http://[::7f00:1]/", /loopback/],
  ["http://[::ffff:0:127.0.0.1]/", /reserved/],
  ["http://[64:ff9b::127.0.0.1]/", /loopback/],
  ["http://[64:ff9b::a9fe:a9fe]/", /metadata/],
  ["http://[64:ff9b:1::a00:1]/", /reserved/],
  ["http://[2002:7f00:1::]/", /reserved/],
  ["http://[2002:0a00:0001::1]/", /reserved/],
  ["http://[2001:0:7f00:1::1]/", /reserved/],
  ["http://[::8.8.8.8]/", /reserved/],
  ["http://10.0.0.1/", /private/],
  ["http://10.255.255.255:8080/", /private/],
  ["http://172.16.0.1/", /private/],
  ["http://172.31.255.255/", /private/],
  ["http://192.168.1.1/", /private/],
  ["http://167772161/", /private/],
  ["http://0xc0a80101/", /private/],
  ["http://[::ffff:10.0.0.1]/", /private/],
  ["http://[::ffff:c0a8:0101]/", /private/],
  ["http://[fc00::1]/", /private/],
  ["http://[fdff:ffff::1]/", /private/],
  ["http://100.64.0.1/", /carrier-grade/],
  ["http://100.127.255.255/", /carrier-grade/],
  ["http://169.254.1.1/", /link-local/],
  ["http://169.254.169.254/latest/meta-data/", /metadata/],
  ["http://0xa9fea9fe/", /metadata/],
  ["http://[::ffff:169.254.169.254]/", /metadata/],
  ["http://[fd00:ec2::254]/", /metadata/],
  ["http://168.63.129.16/", /metadata/],
  ["http://100.100.100.200/", /metadata/],
  ["http://192.0.0.192/", /metadata/],
  ["http://[fe80::1]/", /link-local/],
  ["http://[fec0::1]/", /reserved/],
  ["http://0.0.0.0/", /unspecified/],
  ["http://0/", /unspecified/],
  ["http://0.1.2.3/", /unspecified/],
  ["http://[::]/", /unspecified/],
  ["http://224.0.0.1/", /multicast/],
  ["http://239.255.255.255/", /multicast/],
  ["http://[ff02::1]/", /multicast/],
  ["http://255.255.255.255/", /broadcast/],
  ["http://240.0.0.1/", /reserved/],
  ["http://192.0.2.1/", /reserved/],
  ["http://198.51.100.1/", /reserved/],
  ["http://203.0.113.1/", /reserved/],
  ["http://198.18.0.1/", /reserved/],
  ["http://192.88.99.1/", /reserved/],
  ["http://[2001:db8::1]/", /reserved/],
  ["http://[100::1]/", /reserved/],
  ["http://[5f00::1]/", /reserved/],
  ["http://[4000::1]/", /reserved/],
  ["http://93.184.216.99/", /of this machine/],
  ["http://loop.example/", /stands for a loopback/],
  ["http://loop.example./", /stands for a loopback/],
  ["http://loop6.example/", /stands for a loopback/],
  ["http://mixed.example/", /stands for a private/],
  ["http://mixed6.example/", /stands for a private/],
  ["http://mapped-loop.example/", /stands for a loopback/],
  ["http://metadata.example/", /stands for a metadata/],
  ["http://zoned.example/", /unknown kind/],
  ["http://nonsense.example/", /unknown kind/],
  ["http://octal.example/", /unknown kind/],
  ["http://own.example/", /of this machine/],
  ["http://empty.example/", /has no address/],
  ["http://missing.example/", /has no address/],
  ["http://example.org@127.0.0.1/", /user or a password/],
  ["http://user:secret@example.org/", /user or a password/],
  ["http://1.1.1.1 &@127.0.0.1# @example.org/", /user or a password/],
  ["file:///etc/passwd", /file:/],
  ["ftp://example.org/", /ftp:/],
  ["gopher://127.0.0.1:70/", /gopher:/],
  ["data:text/plain,hello", /data:/],
  ["javascript:alert(1)", /javascript:/],
  ["unix:/var/run/docker.sock", /unix:/],
  ["ws://example.org/", /ws:/],
  ["//example.org/", /not a URL/],
  ["example.org", /not a URL/],
  ["http://", /not a URL/],
  ["http://ex ample.org/", /not a URL/],
  ["http://[fe80::1%25eth0]/", /not a URL/],
  ["http://ex%00ample.org/", /not a URL/],
  ["http://4294967296/", /not a URL/],
  ["http://example.org:22/", /port 22/],
  ["http://example.org:25/", /port 25/],
  ["http://example.org:6379/", /port 6379/],
  ["http://example.org:0/", /port 0/],
  [`http://example.org/${"a".repeat(9000)}`, /at most 8192/],
];

describe("what is not of the public internet is refused, however it is written", () => {
  for (const [url, rule] of refused) {
    test(JSON.stringify(url.slice(0, 60)), async () => {
      const message = await judged(url);
      assert.match(message, rule);
      // A name's address is nobody's business.
      for (const address of names[URL.parse(url)?.hostname.replace(/\.$/, "") ?? ""] ?? []) {
        assert.ok(!message.includes(address), message);
      }
    });
  }
});

test("public addresses are permitted, each in its one form", async () => {
  const rows = [
    ["https://example.org/", "93.184.216.34 2606:2800:220:1:248:1893:25c8:1946"],
    ["https://EXAMPLE.org./a?b#c", "93.184.216.34 2606:2800:220:1:248:1893:25c8:1946"],
    ["https://bücher.example/", "93.184.216.34"],
    ["http://mapped.example/", "93.184.216.34"],
    ["http://8.8.8.8:8080/", "8.8.8.8"],
    ["http://134744072/", "8.8.8.8"],
    ["http://[::ffff:8.8.8.8]/", "8.8.8.8"],
    ["http://[64:ff9b::808:808]/", "64:ff9b::808:808"],
    ["http://[2606:4700:0:0::1111]/", "2606:4700::1111"],
  ] as const;
  for (const [url, addresses] of rows) assert.equal(await judged(url), addresses, url);
});

describe("net.allow opens what it names and nothing else", () => {
  const rows: readonly (readonly [allow: string, url: string, permitted: boolean])[] = [
    ["127.0.0.1", "http://127.0.0.1:1234/", true],
    ["127.0.0.1", "http://2130706433/", true],
    ["127.0.0.1", "http://[::ffff:127.0.0.1]/", true],
    ["127.0.0.1", "http://loop.example/", true],
    ["127.0.0.1", "http://localhost/", false],
    ["127.0.0.1", "http://127.0.0.2/", false],
    ["127.0.0.1:8080", "http://127.0.0.1:8080/", true],
    ["127.0.0.1:8080", "http://127.0.0.1:8081/", false],
    ["[::1]:8080", "http://[::1]:8080/", true],
    ["[::1]:8080", "http://[::1]/", false],
    ["::1", "http://loop6.example/", true],
    ["10.0.0.0/8", "http://mixed.example/", true],
    ["10.0.0.0/8", "http://192.168.0.1/", false],
    ["10.1.0.0/16:443", "https://intranet.example/", true],
    ["10.1.0.0/16:443", "http://intranet.example/", false],
    ["::ffff:10.1.0.0/112", "http://intranet.example/", true],
    ["[fd00::]/8", "http://[fd00::1]/", false],
    ["fd00::/8", "http://[fd00::1]/", true],
    ["intranet.example", "http://intranet.example:81/", true],
    ["Intranet.Example.", "http://intranet.example./", true],
    ["intranet.example", "http://10.1.2.3/", false],
    ["intranet.example", "http://loop.example/", false],
    ["metadata.example", "http://metadata.example/", false],
    ["localhost", "http://localhost/", true],
    ["example.org:6379", "http://example.org:6379/", true],
    ["example.org:6379", "http://example.org:25/", false],
    ["0.0.0.0/0", "http://169.254.169.254/", true],
  ];
  for (const [allow, url, permitted] of rows) {
    test(`${allow}: ${url} is ${permitted ? "permitted" : "refused"}`, async () => {
      if (allow === "[fd00::]/8") {
        assert.throws(() => addressPolicy({ allow: [allow] }), /is wanted/);
        return;
      }
      const policy = addressPolicy({ resolve, ownAddresses, allow: [allow] });
      assert.equal(/^[0-9a-f.: ]+$/.test(await judged(url, policy)), permitted);
    });
  }

  test("an entry that cannot be read is named", () => {
    for (const entry of [
      "",
      "http://x",
      "a b",
      "10.0.0.0/33",
      "::/129",
      "x:99999",
      "*.example.org",
      "127.1",
      "user@x",
      "fe80::1%eth0",
      "10.0.0.0/",
      "a/8",
    ]) {
      assert.throws(
        () => readAllowed(entry),
        (error) => error instanceof Error && error.message.startsWith(`${JSON.stringify(entry)}: `),
        entry,
      );
    }
  });
});
