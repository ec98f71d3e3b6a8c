import { existsSync, readFileSync, realpathSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, extname, join } from "node:path";
import { isRecord } from "../check-value.ts";
import { findProgram } from "../sandbox/find-program.ts";

/** A language somebody can have a server for. */
export interface Language {
  readonly id: string;
  /** Other words for it, in small letters. */
  readonly names: readonly string[];
  /** What the protocol calls a file, by the end of its name. */
  readonly files: Readonly<Record<string, string>>;
  /** The program, and the npm package that brings it, where there is one. */
  readonly program: string;
  readonly npmPackage?: string;
  readonly args: readonly string[];
  /** What a person does where it is missing, as the end of a sentence. */
  readonly install: string;
  /** Its checks are asked for by a command of its own: what it publishes by itself comes in parts. */
  readonly diagnosesBy?: "tsserver";
}

export const languages: readonly Language[] = [
  {
    id: "typescript",
    names: ["javascript", "typescriptreact", "javascriptreact", "ts", "js", "tsx", "jsx"],
    files: {
      ...{ ".ts": "typescript", ".mts": "typescript", ".cts": "typescript", ".tsx": "typescriptreact" },
      ...{ ".js": "javascript", ".mjs": "javascript", ".cjs": "javascript", ".jsx": "javascriptreact" },
    },
    program: "typescript-language-server",
    npmPackage: "typescript-language-server",
    args: ["--stdio"],
    install: "npm install --global typescript-language-server typescript",
    diagnosesBy: "tsserver",
  },
  {
    id: "python",
    names: ["py"],
    files: { ".py": "python", ".pyi": "python" },
    program: "pyright-langserver",
    npmPackage: "pyright",
    args: ["--stdio"],
    install: "npm install --global pyright",
  },
  {
    id: "rust",
    names: ["rs"],
    files: { ".rs": "rust" },
    program: "rust-analyzer",
    args: [],
    install: "rustup component add rust-analyzer",
  },
  {
    id: "go",
    names: ["golang"],
    files: { ".go": "go" },
    program: "gopls",
    args: [],
    install: "go install golang.org/x/tools/gopls@latest",
  },
  {
    id: "cpp",
    names: ["c", "c++", "cxx", "objective-c", "objective-cpp"],
    files: {
      ...{
        ".c": "c",
        ".h": "c",
        ".cc": "cpp",
        ".cpp": "cpp",
        ".cxx": "cpp",
        ".hh": "cpp",
        ".hpp": "cpp",
        ".hxx": "cpp",
      },
      ...{ ".m": "objective-c", ".mm": "objective-cpp" },
    },
    program: "clangd",
    args: [],
    install: "apt install clangd",
  },
];

/** The language of a name, whatever its case. */
export function languageNamed(name: string): Language | undefined {
  const word = name.trim().toLowerCase();
  return languages.find(({ id, names }) => id === word || names.includes(word));
}

/** The language of a file by the end of its name, and the protocol's word for it. */
export function languageOfFile(path: string): { readonly language: Language; readonly id: string } | undefined {
  const end = extname(path).toLowerCase();
  for (const language of languages) {
    const id = language.files[end];
    if (id !== undefined) return { language, id };
  }
  return undefined;
}

/** How a language server is started. */
export interface LanguageProgram {
  readonly program: string;
  readonly args: readonly string[];
  /** Of the package it was found in; empty where it was not found in one. */
  readonly version: string;
  /** Where it and what it is made of lie, absolute and without links. */
  readonly readable: readonly string[];
  /** What it is to be told when it is greeted. */
  readonly initializationOptions?: Readonly<Record<string, unknown>>;
}

/**
 * Finds the program of a language: in the PATH, else beside this server's own packages. What lies in the folder it is to
 * look at is never taken: whoever wrote that would choose what runs.
 * @param path the server's own PATH
 * @param root absolute path without links
 */
export function findLanguageProgram(
  language: Language,
  path: string | undefined,
  root: string,
): LanguageProgram | undefined {
  const found = inPath(language.program, path, root) ?? inPackage(language);
  if (found === undefined) return undefined;
  const { program, version, script } = found;
  const args = [...found.args, ...language.args];
  const readable = [...new Set([dirname(program), homeOf(script)])];
  if (language.diagnosesBy !== "tsserver") return { program, args, version, readable };
  const tsserver = tsserverFor(script);
  if (tsserver === undefined) return undefined;
  // Told where the compiler is, it does not take the one of the folder it looks at. A second compiler, which knows one file
  // only, would answer while the first still reads the project.
  return {
    ...{ program, args, version },
    readable: [...readable, homeOf(tsserver)],
    initializationOptions: { tsserver: { path: tsserver, useSyntaxServer: "never" } },
  };
}

interface Found {
  readonly program: string;
  readonly args: readonly string[];
  /** The file itself, without links. */
  readonly script: string;
  readonly version: string;
}

function inPath(name: string, path: string | undefined, root: string): Found | undefined {
  for (const folder of (path ?? "").split(":")) {
    const program = findProgram(name, folder);
    if (program === undefined) continue;
    const script = realpathSync(program);
    if (!isWithin(root, program) && !isWithin(root, script)) return { program, args: [], script, version: "" };
  }
  return undefined;
}

/** Run by this Node.js, whatever the first line of the script names. */
function inPackage({ npmPackage, program }: Language): Found | undefined {
  if (npmPackage === undefined) return undefined;
  try {
    const file = createRequire(import.meta.url).resolve(`${npmPackage}/package.json`);
    const content: unknown = JSON.parse(readFileSync(file, "utf8"));
    const bin = isRecord(content) && isRecord(content["bin"]) ? content["bin"][program] : undefined;
    if (typeof bin !== "string") return undefined;
    const script = realpathSync(join(dirname(file), bin));
    const version = isRecord(content) && typeof content["version"] === "string" ? content["version"] : "";
    return { program: process.execPath, args: [script], script, version };
  } catch {
    return undefined;
  }
}

/** The TypeScript beside the language server, or beside this server. */
function tsserverFor(script: string): string | undefined {
  for (const from of [script, import.meta.url]) {
    try {
      const file = createRequire(from).resolve("typescript/lib/tsserver.js");
      if (existsSync(file)) return realpathSync(file);
    } catch {
      // It is not there.
    }
  }
  return undefined;
}

/** A package needs those beside it; any other program lies where its parts do. */
function homeOf(script: string): string {
  return /^.*?\/node_modules(?=\/)/.exec(script)?.[0] ?? dirname(script);
}

function isWithin(folder: string, path: string): boolean {
  return path === folder || path.startsWith(folder.endsWith("/") ? folder : `${folder}/`);
}
