import assert from "node:assert/strict";
import { once } from "node:events";
import { constants, mkdirSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { dirname, join } from "node:path";
import { describe, test } from "node:test";
import fc from "fast-check";
import { AgentError } from "../../src/chat/error.ts";
import {
  openBeneath,
  openChild,
  openDirectoryBeneath,
  openFileBeneath,
  resolveWorkspace,
  WorkspacePathError,
} from "../../src/tool/workspace.ts";
import { inLoop } from "./other-process.ts";
import { type Entry, temporaryWorkspace } from "./temporary-workspace.ts";

const entries: Readonly<Record<string, Entry>> = {
  "a.txt": "inside",
  "d/e/b.txt": "deep",
  "~": "tilde",
  "%2e%2e": "percent",
  "file:": "<directory>",
  "file:/a.txt": "scheme",
  "to-a": { link: "a.txt" },
  "to-d": { link: "d" },
  "d/up": { link: "../a.txt" },
  "chain-1": { link: "chain-2" },
  "chain-2": { link: "to-d/e/../up" },
  loop: { link: "loop" },
  "loop-1": { link: "loop-2" },
  "loop-2": { link: "loop-1" },
  "leaf-out": { link: "../out/secret.txt" },
  "leaf-out-absolute": { link: "/etc/hostname" },
  "directory-out": { link: "../out" },
  "dangling-out": { link: "../out/none.txt" },
  "dangling-in": { link: "none.txt" },
  "chain-out": { link: "chain-out-2" },
  "chain-out-2": { link: "to-d/../../out/secret.txt" },
  "magic-out": { link: "/proc/self/root/etc/hostname" },
  zero: { link: "/dev/zero" },
  pipe: "<pipe>",
};

async function read(workspace: string, path: string, byName: boolean): Promise<string> {
  const { handle } = await openFileBeneath(workspace, path, { byName });
  try {
    return await handle.readFile("utf8");
  } finally {
    await handle.close();
  }
}

function problem(expected: string) {
  return (error: unknown) => {
    assert.ok(error instanceof WorkspacePathError, `${error}`);
    assert.equal(error.problem, expected);
    assert.ok(!error.message.includes("/tmp/workspace-") || error.message.startsWith('"/tmp/workspace-'));
    return true;
  };
}

for (const byName of [false, true]) {
  describe(byName ? "walking by names" : "walking by descriptors", () => {
    const good: readonly (readonly [string, string])[] = [
      ["a.txt", "inside"],
      ["./a.txt", "inside"],
      ["d//e/./b.txt", "deep"],
      ["d/../a.txt", "inside"],
      ["d/e/../../a.txt", "inside"],
      ["~", "tilde"],
      ["%2e%2e", "percent"],
      ["file:///a.txt", "scheme"],
      ["to-a", "inside"],
      ["to-d/e/b.txt", "deep"],
      ["to-d/../a.txt", "inside"],
      ["chain-1", "inside"],
      ["<ws>/a.txt", "inside"],
      ["<ws>//d/e/b.txt", "deep"],
    ];
    for (const [path, text] of good) {
      test(`reads ${path}`, async (context) => {
        const workspace = temporaryWorkspace(context, entries);
        assert.equal(await read(workspace, path.replace("<ws>", workspace), byName), text);
      });
    }

    const bad: readonly (readonly [string, string])[] = [
      ["..", "outside"],
      ["../out/secret.txt", "outside"],
      ["../out/none.txt", "outside"],
      ["d/../../out/secret.txt", "outside"],
      ["d/e/../../../ws/a.txt", "outside"],
      ["/etc/passwd", "outside"],
      ["/none", "outside"],
      ["<ws>-evil/a.txt", "outside"],
      ["<ws>/../out/secret.txt", "outside"],
      ["leaf-out", "outside"],
      ["leaf-out-absolute", "outside"],
      ["directory-out/secret.txt", "outside"],
      ["directory-out/none.txt", "outside"],
      ["directory-out/../ws/a.txt", "outside"],
      ["dangling-out", "outside"],
      ["chain-out", "outside"],
      ["magic-out", "outside"],
      ["zero", "outside"],
      ["dangling-in", "missing"],
      ["none", "missing"],
      ["none/../../out", "missing"],
      ["~/a.txt", "not-a-directory"],
      ["a.txt/", "not-a-directory"],
      ["a.txt/..", "not-a-directory"],
      ["a.txt/b", "not-a-directory"],
      ["loop", "links"],
      ["loop-1/x", "links"],
      ["d", "not-a-file"],
      ["", "not-a-file"],
      [".", "not-a-file"],
      ["pipe", "not-a-file"],
      ["a\0.txt", "invalid"],
      ["../out/secret.txt\0", "invalid"],
      ["x".repeat(300), "invalid"],
      ["x/".repeat(3000), "invalid"],
    ];
    for (const [path, expected] of bad) {
      test(`refuses ${JSON.stringify(path.slice(0, 40))}`, { timeout: 5000 }, async (context) => {
        const workspace = temporaryWorkspace(context, entries);
        await assert.rejects(read(workspace, path.replace("<ws>", workspace), byName), problem(expected));
      });
    }

    test("an outside that exists and one that does not look the same", async (context) => {
      const workspace = temporaryWorkspace(context, { there: { link: "../out" }, gone: { link: "../out-none" } });
      const messages = await Promise.all(
        ["there/x", "gone/x"].map((path) => read(workspace, path, byName).catch((error: Error) => error.message)),
      );
      assert.deepEqual(messages, ['"there/x" is outside the workspace', '"gone/x" is outside the workspace']);
    });

    test("an absolute link into the workspace is followed", async (context) => {
      const workspace = temporaryWorkspace(context, { "d/a": "yes" });
      symlinkSync(`${workspace}/d/a`, join(workspace, "absolute"));
      assert.equal(await read(workspace, "absolute", byName), "yes");
    });

    test("a link in the place of the workspace itself is not followed", async (context) => {
      const workspace = temporaryWorkspace(context, { "a.txt": "x" });
      symlinkSync("out", join(dirname(workspace), "other"));
      await assert.rejects(read(join(dirname(workspace), "other"), "secret.txt", byName), problem("missing"));
    });

    test("new files are made where the path leads, never through a link to the outside", async (context) => {
      const workspace = temporaryWorkspace(context, { ...entries, "dangling-new": { link: "d/new.txt" } });
      const flags = constants.O_WRONLY | constants.O_CREAT;
      for (const [path, expected] of [
        ["new.txt", "new.txt"],
        ["to-d/e/new.txt", "d/e/new.txt"],
        ["dangling-new", "d/new.txt"],
      ] as const) {
        const made = await openBeneath(workspace, path, flags, { byName });
        await made.handle.writeFile("made");
        await made.handle.close();
        assert.equal(made.path, expected);
        assert.equal(made.stats.mode & 0o777, 0o600);
        assert.equal(readFileSync(join(workspace, expected), "utf8"), "made");
      }
      for (const path of ["dangling-out", "directory-out/new.txt", "../out/new.txt"]) {
        await assert.rejects(openBeneath(workspace, path, flags, { byName }), problem("outside"));
      }
      await assert.rejects(openBeneath(workspace, "none/new.txt", flags, { byName }), problem("missing"));
      await assert.rejects(openBeneath(workspace, "a.txt", flags | constants.O_EXCL, { byName }), problem("exists"));
      assert.deepEqual(readdirSync(join(workspace, "../out")), ["secret.txt"]);
    });
  });
}

test("a socket is refused", async (context) => {
  const workspace = temporaryWorkspace(context, {});
  const server = createServer().listen(join(workspace, "s"));
  await once(server, "listening");
  context.after(() => server.close());
  await assert.rejects(openFileBeneath(workspace, "s"), /is a socket, not a regular file/);
});

test("directories open as directories, files do not", async (context) => {
  const workspace = temporaryWorkspace(context, entries);
  for (const [path, expected] of [
    ["", "."],
    ["to-d/e", "d/e"],
    [workspace, "."],
  ] as const) {
    const opened = await openDirectoryBeneath(workspace, path);
    assert.equal(opened.path, expected);
    await opened.handle.close();
  }
  await assert.rejects(openDirectoryBeneath(workspace, "a.txt"), problem("not-a-directory"));
});

test("a child is one plain name", async (context) => {
  const workspace = temporaryWorkspace(context, entries);
  const directory = await openDirectoryBeneath(workspace, ".");
  const child = await openChild(directory, "a.txt", constants.O_RDONLY);
  assert.equal(await child.handle.readFile("utf8"), "inside");
  await child.handle.close();
  for (const name of ["..", ".", "d/e", "../out"]) {
    await assert.rejects(openChild(directory, name, constants.O_RDONLY), problem("outside"));
  }
  await assert.rejects(openChild(directory, "leaf-out", constants.O_RDONLY), problem("links"));
  await directory.handle.close();
});

test("no descriptor stays open", async (context) => {
  const workspace = temporaryWorkspace(context, entries);
  const count = () => readdirSync("/proc/self/fd").length;
  await read(workspace, "a.txt", false);
  const before = count();
  for (const path of ["chain-1", "chain-out", "loop", "none/x", "pipe", "d", "a.txt/b", "../x"]) {
    await read(workspace, path, false).catch(() => undefined);
  }
  assert.equal(count(), before);
});

test("a directory that is swapped for a link while it is read never leads outside", {
  timeout: 60_000,
}, async (context) => {
  const workspace = temporaryWorkspace(context, { "d/secret.txt": "mine\n", "other/secret.txt": "mine\n" });
  symlinkSync("../out", join(workspace, "link"));
  const stop = await inLoop(
    context,
    workspace,
    'renameSync("d", "kept"); renameSync("link", "d"); renameSync("d", "link"); renameSync("kept", "d");',
  );
  const seen = new Map<string, number>();
  for (let round = 0; round < 500; round++) {
    const text = await read(workspace, "d/secret.txt", false).catch((error: unknown) => {
      assert.ok(error instanceof WorkspacePathError, `${error}`);
      return error.problem;
    });
    seen.set(text, (seen.get(text) ?? 0) + 1);
  }
  await stop();
  const allowed = new Set(["mine\n", "outside", "missing", "links"]);
  assert.deepEqual(
    [...seen.keys()].filter((text) => !allowed.has(text)),
    [],
  );
  assert.ok((seen.get("mine\n") ?? 0) > 0, "the file was never read");
  assert.ok((seen.get("outside") ?? 0) > 0, "the link was never met");
});

test("a new file is never made through a link that appears meanwhile", { timeout: 60_000 }, async (context) => {
  const workspace = temporaryWorkspace(context, {});
  const stop = await inLoop(context, workspace, 'symlinkSync("../out/new.txt", "f"); unlinkSync("f");');
  const flags = constants.O_WRONLY | constants.O_CREAT;
  let made = 0;
  for (let round = 0; round < 1000; round++) {
    const opened = await openBeneath(workspace, "f", flags).catch((error: unknown) => {
      assert.ok(error instanceof WorkspacePathError, `${error}`);
    });
    if (opened === undefined) continue;
    made++;
    await opened.handle.close();
    rmSync(join(workspace, "f"), { force: true });
  }
  await stop();
  assert.ok(made > 0, "no file was ever made");
  assert.deepEqual(readdirSync(join(workspace, "../out")), ["secret.txt"]);
});

test("no path leads outside, and inside paths lead where the system says", async (context) => {
  const workspace = temporaryWorkspace(context, entries);
  mkdirSync(`${workspace}-evil`);
  writeFileSync(`${workspace}-evil/a.txt`, "SECRET\n");
  const names = [
    "..",
    ".",
    "",
    "d",
    "e",
    "a.txt",
    "b.txt",
    "to-d",
    "directory-out",
    "secret.txt",
    "chain-2",
    "ws",
    "out",
  ];
  await fc.assert(
    fc.asyncProperty(fc.array(fc.constantFrom(...names), { maxLength: 8 }), fc.boolean(), async (parts, byName) => {
      const path = parts.join("/");
      if (path.startsWith("/")) return;
      const text = await read(workspace, path, byName).catch((error: unknown) => {
        assert.ok(error instanceof WorkspacePathError, `${error}`);
        return undefined;
      });
      assert.notEqual(text, "SECRET\n");
      if (text !== undefined) assert.equal(text, readFileSync(`${workspace}/${path}`, "utf8"));
    }),
    { numRuns: 300 },
  );
});

describe("the workspace of a new session", () => {
  const cases: readonly (readonly [string, string, string])[] = [
    ["relative", "ws", "invalid_request"],
    ["empty", "", "invalid_request"],
    ["home", "~/ws", "invalid_request"],
    ["NUL", "<base>/ws\0", "invalid_request"],
    ["a file", "<base>/ws/a.txt", "invalid_request"],
    ["beneath a file", "<base>/ws/a.txt/b", "invalid_request"],
    ["the root", "/", "permission_denied"],
    ["/etc", "/etc", "permission_denied"],
    ["outside, missing", "/none/at/all", "permission_denied"],
    ["a sibling with the same beginning", "<base>/ws-evil", "permission_denied"],
    ["dots", "<base>/ws/../out", "permission_denied"],
    ["a link out", "<base>/ws/directory-out", "permission_denied"],
    ["a dangling link out", "<base>/ws/dangling-out", "permission_denied"],
    ["missing inside", "<base>/ws/none", "not_found"],
  ];
  for (const [title, path, kind] of cases) {
    test(`${title}: ${kind}`, async (context) => {
      const workspace = temporaryWorkspace(context, entries);
      mkdirSync(`${workspace}-evil`);
      const base = dirname(workspace);
      await assert.rejects(resolveWorkspace(path.replace("<base>", base), [`${base}/none`, workspace]), (error) => {
        assert.ok(error instanceof AgentError, `${error}`);
        assert.equal(error.kind, kind);
        assert.deepEqual(
          error.fieldViolations.map(({ field }) => field),
          ["workspace"],
        );
        return true;
      });
    });
  }

  test("comes back without links", async (context) => {
    const workspace = temporaryWorkspace(context, entries);
    const base = dirname(workspace);
    symlinkSync("ws", `${base}/alias`);
    assert.equal(await resolveWorkspace(workspace, [workspace]), workspace);
    assert.equal(await resolveWorkspace(`${workspace}/to-d/`, [base]), `${workspace}/d`);
    assert.equal(await resolveWorkspace(`${base}/alias/d`, [workspace]), `${workspace}/d`);
    assert.equal(await resolveWorkspace(`${base}/alias/d`, [`${base}/alias`]), `${workspace}/d`);
  });

  test("without roots nothing is allowed", async () => {
    await assert.rejects(resolveWorkspace("/tmp", []), { kind: "permission_denied" });
  });
});
