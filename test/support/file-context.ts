import { after, type TestContext } from "node:test";

/**
 * Stands for a test whose resources are shared by all tests of a file: what is given to `after` is done when the last of
 * them is over, the latest first. To be called at the top of a file or of a `describe`.
 */
export function fileContext(): Pick<TestContext, "after"> {
  const endings: (() => unknown)[] = [];
  after(async () => {
    for (const end of endings) await end();
  });
  return { after: (end?: unknown) => void (typeof end === "function" && endings.unshift(() => end())) };
}
