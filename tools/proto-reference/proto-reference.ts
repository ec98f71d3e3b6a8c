import { execFileSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import {
  createFileRegistry,
  type DescComments,
  type DescEnum,
  type DescField,
  type DescFile,
  type DescMessage,
  type DescService,
  fromBinary,
  ScalarType,
} from "@bufbuild/protobuf";
import { FileDescriptorSetSchema } from "@bufbuild/protobuf/wkt";
import { getComments } from "@bufbuild/protoplugin";

// Writes the reference of the services from the comments of their proto files: docs/reference/<package>.md. With --check it
// writes nothing, and fails where a page is not as it would be written.

const root = join(import.meta.dirname, "../..");
const pages = [
  {
    package: "codeagent.v1",
    intro:
      "The contract. JSON has these names in lowerCamelCase; 64-bit numbers are texts there, bytes are base64, times are RFC 3339.",
  },
  {
    package: "a3s.code.agent.v1",
    intro:
      "The earlier service, as its later clients know it, answered from the same core. What is answered otherwise than it was, and how the clients with enum roles are served, is told in [compatibility](../compatibility.md). Times are in milliseconds since 1970.",
  },
];

function words(comments: DescComments, separator = "\n\n"): string {
  return [comments.leading, comments.trailing]
    .map((text) => (text ?? "").trim())
    .filter((text) => text !== "")
    .map((text) =>
      text
        .split(/\n\s*\n/)
        .map((paragraph) =>
          paragraph
            .split("\n")
            .map((line) => line.trim())
            .join(" "),
        )
        .join(separator),
    )
    .join(separator);
}

const anchor = (name: string) => name.toLowerCase().replaceAll(/[^a-z0-9]/g, "");

function link(desc: DescMessage | DescEnum, from: string): string {
  const name = shortName(desc);
  return desc.file.proto.package === from ? `[${name}](#${anchor(name)})` : desc.typeName;
}

function shortName(desc: DescMessage | DescEnum): string {
  return desc.typeName.slice(desc.file.proto.package.length + 1);
}

function typeOf(field: DescField, from: string): string {
  const scalar = (type: ScalarType) => (ScalarType[type] ?? "").toLowerCase();
  switch (field.fieldKind) {
    case "scalar":
      return scalar(field.scalar);
    case "enum":
      return link(field.enum, from);
    case "message":
      return link(field.message, from);
    case "list": {
      if (field.listKind === "scalar") return `repeated ${scalar(field.scalar)}`;
      return `repeated ${link(field.listKind === "enum" ? field.enum : field.message, from)}`;
    }
    case "map": {
      const { mapKind } = field;
      const value =
        mapKind === "scalar" ? scalar(field.scalar) : link(mapKind === "enum" ? field.enum : field.message, from);
      return `map of ${scalar(field.mapKey)} to ${value}`;
    }
    default:
      return field satisfies never;
  }
}

const cell = (text: string) => text.replaceAll("|", "\\|").replaceAll("\n", " ");

function fieldRow(field: DescField, from: string): string {
  const { oneof, proto } = field;
  const group = oneof === undefined ? "" : `one of ${oneof.name}: `;
  const optional = proto.proto3Optional ? "optional " : "";
  const about = cell(words(getComments(field), " "));
  return `| \`${field.name}\` | ${field.number} | ${group}${optional}${typeOf(field, from)} | ${about} |`;
}

function messageText(message: DescMessage): string[] {
  const from = message.file.proto.package;
  const rows = message.fields.map((field) => fieldRow(field, from));
  const table = rows.length === 0 ? ["No fields."] : ["| field | | type | |", "| --- | --- | --- | --- |", ...rows];
  const nested = message.nestedMessages.filter((inner) => inner.proto.options?.mapEntry !== true);
  return [
    `### ${shortName(message)}`,
    words(getComments(message)),
    table.join("\n"),
    ...message.nestedEnums.flatMap(enumText),
    ...nested.flatMap(messageText),
  ].filter((text) => text !== "");
}

function enumText(desc: DescEnum): string[] {
  const rows = desc.values.map(
    (value) => `| \`${value.name}\` | ${value.number} | ${cell(words(getComments(value), " "))} |`,
  );
  const table = ["| value | | |", "| --- | --- | --- |", ...rows].join("\n");
  return [`### ${shortName(desc)}`, words(getComments(desc)), table].filter((text) => text !== "");
}

function serviceText(service: DescService): string[] {
  const from = service.file.proto.package;
  const rows = service.methods.map((method) => {
    const stream = method.methodKind === "server_streaming" ? "stream of " : "";
    const about = cell(words(getComments(method), " "));
    return `| \`${method.name}\` | ${link(method.input, from)} | ${stream}${link(method.output, from)} | ${about} |`;
  });
  const table = ["| RPC | takes | gives | |", "| --- | --- | --- | --- |", ...rows].join("\n");
  return [`## ${service.name}`, words(getComments(service)), table].filter((text) => text !== "");
}

function page(name: string, intro: string, files: readonly DescFile[]): string {
  const messages = files.flatMap((file) => file.messages).toSorted((left, right) => (left.name < right.name ? -1 : 1));
  const enums = files.flatMap((file) => file.enums).toSorted((left, right) => (left.name < right.name ? -1 : 1));
  const parts = [
    `# ${name}`,
    "Made from the comments of the proto files by `npm run docs`; edit those.",
    intro,
    ...files.flatMap((file) => file.services).flatMap(serviceText),
    "## Messages",
    ...messages.flatMap(messageText),
    ...(enums.length === 0 ? [] : ["## Enums", ...enums.flatMap(enumText)]),
  ];
  return `${parts.join("\n\n")}\n`;
}

const built = execFileSync("buf", ["build", "proto", "-o", "-"], { cwd: root, maxBuffer: 64 * 1024 * 1024 });
const files = [...createFileRegistry(fromBinary(FileDescriptorSetSchema, built)).files];
let stale = 0;
for (const { package: name, intro } of pages) {
  const ofPackage = files.filter((file) => file.proto.package === name);
  const text = page(name, intro, ofPackage);
  const path = join(root, "docs/reference", `${name}.md`);
  if (!process.argv.includes("--check")) writeFileSync(path, text);
  else if (readFileSync(path, "utf8") !== text) {
    stale++;
    console.error(`docs/reference/${name}.md is not what the proto files say; run npm run docs`);
  }
}
if (stale > 0) process.exitCode = 1;
