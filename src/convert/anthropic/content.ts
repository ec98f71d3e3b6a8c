import { invalidField } from "../../chat/error.ts";
import type { BlockOrigin, ContentBlock, Message, ToolUseBlock } from "../../chat/message.ts";
import { checkImageUrl, quoted } from "../content-check.ts";
import type { JsonObject } from "../json-field.ts";
import {
  isAbsent,
  readArray,
  readFilledText,
  readObject,
  readOptionalArray,
  readOptionalBoolean,
  readOptionalObject,
  readOptionalText,
  readText,
  readWord,
} from "../json-field.ts";
import { present, presentText } from "../present.ts";
import type { PartBlock } from "../proto/block.ts";
import { resultOfParts } from "../proto/message.ts";
import type { SealableBlock } from "../sealed-reasoning.ts";
import { isSealedReasoning, openBlock } from "../sealed-reasoning.ts";

/** Who is taken to have written thinking with a signature that is not ours. */
export type Author = Pick<BlockOrigin, "provider" | "model">;

/** The system prompt as a message; nothing where it says nothing. */
export function systemFromAnthropic(system: unknown): Message[] {
  const blocks = textsFromAnthropic(system, "system");
  return blocks.length === 0 ? [] : [{ role: "system", blocks }];
}

/**
 * Reads one message in Anthropic's shape, which may be several of ours: results of tools become `tool` messages, and what
 * the server did between two pieces of an answer stands between them again, where the client sends back the
 * `redacted_thinking` that holds it.
 *
 * A user says text, images, documents and search results; the latter become text. Documents by URL and images by id are
 * refused, since nothing is fetched here. The assistant says text, thinking and calls; blocks that have no counterpart
 * here, such as the calls of the vendor's own tools, are kept to go back to a provider that speaks Anthropic's format. `cache_control`,
 * `citations`, `transformations` and `caller` are not read. An assistant message that says nothing is left out.
 * @param author of thinking that did not come from this service
 * @throws {AgentError} `invalid_request` with the path of the field that is wrong, as in `messages.1.content.0.type`.
 */
export function messagesFromAnthropic(param: unknown, path: string, author: Author): Message[] {
  const fields = readObject(param, path);
  const role = readWord(fields["role"], ["user", "assistant", "system"], `${path}.role`);
  const contentPath = `${path}.content`;
  const { content } = fields;
  switch (role) {
    case "system": {
      const blocks = textsFromAnthropic(content, contentPath);
      if (blocks.length === 0) throw invalidField(contentPath, "is empty");
      return [{ role, blocks }];
    }
    case "user":
      return userMessages(content, contentPath);
    case "assistant":
      return assistantMessages(content, contentPath, author);
    default:
      return role satisfies never;
  }
}

function textsFromAnthropic(content: unknown, path: string): ContentBlock[] {
  if (isAbsent(content)) return [];
  if (typeof content === "string") return textBlocks(readText(content, path));
  return readArray(content, path).flatMap((block, index) => {
    const blockPath = `${path}.${index}`;
    const fields = readObject(block, blockPath);
    readWord(fields["type"], ["text"], `${blockPath}.type`);
    return textBlocks(readText(fields["text"], `${blockPath}.text`));
  });
}

function textBlocks(text: string): { readonly type: "text"; readonly text: string }[] {
  return text === "" ? [] : [{ type: "text", text }];
}

function userMessages(content: unknown, path: string): Message[] {
  if (typeof content === "string") return [{ role: "user", blocks: textBlocks(readFilledText(content, path)) }];
  const results: Message[] = [];
  const blocks = readArray(content, path).flatMap((block, index) => {
    const blockPath = `${path}.${index}`;
    const fields = readObject(block, blockPath);
    if (fields["type"] !== "tool_result") return partsFromAnthropic(fields, blockPath, userTypes);
    results.push({ role: "tool", blocks: [resultFromAnthropic(fields, blockPath)] });
    return [];
  });
  if (blocks.length === 0 && results.length === 0) throw invalidField(path, "is empty");
  return blocks.length === 0 ? results : [...results, { role: "user", blocks }];
}

const partTypes = ["text", "image", "document", "search_result"] as const;
type PartType = (typeof partTypes)[number];
const userTypes = [...partTypes, "tool_result"] as const;

function resultFromAnthropic(fields: JsonObject, path: string) {
  const toolUseId = readFilledText(fields["tool_use_id"], `${path}.tool_use_id`);
  const { content } = fields;
  const contentPath = `${path}.content`;
  const parts =
    isAbsent(content) || typeof content === "string"
      ? textBlocks(readOptionalText(content, contentPath) ?? "")
      : readArray(content, contentPath).flatMap((part, index) =>
          partsFromAnthropic(readObject(part, `${contentPath}.${index}`), `${contentPath}.${index}`, partTypes),
        );
  const isError = readOptionalBoolean(fields["is_error"], `${path}.is_error`) || undefined;
  return present({ ...resultOfParts(toolUseId, parts), isError });
}

function partsFromAnthropic(
  fields: JsonObject,
  path: string,
  types: readonly (PartType | "tool_result")[],
): PartBlock[] {
  const word = readWord(fields["type"], types, `${path}.type`);
  const type = partTypes.find((known) => known === word);
  switch (type) {
    case "text":
      return textBlocks(readText(fields["text"], `${path}.text`));
    case "image":
      return [{ type: "image", url: imageUrl(readObject(fields["source"], `${path}.source`), `${path}.source`) }];
    case "document":
      return documentParts(fields, path);
    case "search_result": {
      const texts = textsFromAnthropic(fields["content"], `${path}.content`);
      const said = texts.map((block) => (block.type === "text" ? block.text : ""));
      const head = [readText(fields["title"], `${path}.title`), readText(fields["source"], `${path}.source`)];
      return textBlocks([...head, ...said].filter((line) => line !== "").join("\n"));
    }
    case undefined:
      return [];
    default:
      return type satisfies never;
  }
}

function imageUrl(source: JsonObject, path: string): string {
  const type = readWord(source["type"], ["base64", "url", "file"], `${path}.type`);
  switch (type) {
    case "base64":
      return dataUrl(source, path);
    case "url": {
      const url = readText(source["url"], `${path}.url`);
      checkImageUrl(url, `${path}.url`);
      return url;
    }
    case "file":
      throw invalidField(`${path}.type`, "is file; this service keeps no files: send the image itself, as base64");
    default:
      return type satisfies never;
  }
}

function dataUrl(source: JsonObject, path: string): string {
  const mediaType = readFilledText(source["media_type"], `${path}.media_type`);
  if (!/^[\w.+-]+\/[\w.+-]+$/.test(mediaType))
    throw invalidField(`${path}.media_type`, `is ${quoted(mediaType)}; must be a media type, as image/png is one`);
  return `data:${mediaType};base64,${readFilledText(source["data"], `${path}.data`)}`;
}

const documentTypes = ["base64", "text", "content", "url", "file"] as const;

/** What the document is about (`context`) goes before it, as text. */
function documentParts(fields: JsonObject, path: string): PartBlock[] {
  const filename = presentText(readOptionalText(fields["title"], `${path}.title`) ?? "");
  const context = textBlocks(readOptionalText(fields["context"], `${path}.context`) ?? "");
  const sourcePath = `${path}.source`;
  const source = readObject(fields["source"], sourcePath);
  const type = readWord(source["type"], documentTypes, `${sourcePath}.type`);
  switch (type) {
    case "base64":
      return [...context, present({ type: "file", data: dataUrl(source, sourcePath), filename })];
    case "text": {
      const data = Buffer.from(readText(source["data"], `${sourcePath}.data`), "utf8").toString("base64");
      return [...context, present({ type: "file", data: `data:text/plain;base64,${data}`, filename })];
    }
    case "content": {
      const { content } = source;
      const contentPath = `${sourcePath}.content`;
      if (typeof content === "string") return [...context, ...textBlocks(readText(content, contentPath))];
      const parts = readArray(content, contentPath).flatMap((part, index) =>
        partsFromAnthropic(readObject(part, `${contentPath}.${index}`), `${contentPath}.${index}`, ["text", "image"]),
      );
      return [...context, ...parts];
    }
    case "file":
      return [
        ...context,
        present({ type: "file", fileId: readFilledText(source["file_id"], `${sourcePath}.file_id`), filename }),
      ];
    case "url":
      throw invalidField(`${sourcePath}.type`, "is url; this service fetches nothing: send the document as base64");
    default:
      return type satisfies never;
  }
}

/** Each place where the server ran its tools, or said something, ends a message. */
function assistantMessages(content: unknown, path: string, author: Author): Message[] {
  if (isAbsent(content) || typeof content === "string") {
    const blocks = textBlocks(readOptionalText(content, path) ?? "");
    return blocks.length === 0 ? [] : [{ role: "assistant", blocks }];
  }
  const messages: Message[] = [];
  let blocks: ContentBlock[] = [];
  const endAnswer = () => {
    if (blocks.length > 0) messages.push({ role: "assistant", blocks });
    blocks = [];
  };
  for (const [index, param] of readOptionalArray(content, path).entries()) {
    for (const block of saidFromAnthropic(param, `${path}.${index}`, author)) {
      if (block.type === "tool_result" || block.type === "note") {
        endAnswer();
        messages.push(
          block.type === "note" ? { role: "user", blocks: textBlocks(block.text) } : { role: "tool", blocks: [block] },
        );
      } else blocks.push(block);
    }
  }
  endAnswer();
  return messages;
}

const onlyUsers: readonly string[] = ["image", "document", "search_result", "tool_result"];

function saidFromAnthropic(param: unknown, path: string, author: Author): SealableBlock[] {
  const fields = readObject(param, path);
  const type = readFilledText(fields["type"], `${path}.type`);
  switch (type) {
    case "text":
      return textBlocks(readText(fields["text"], `${path}.text`));
    case "thinking": {
      const thinking = readText(fields["thinking"], `${path}.thinking`);
      const signature = presentText(readOptionalText(fields["signature"], `${path}.signature`) ?? "");
      const sealed = unsealed(signature ?? "", `${path}.signature`);
      return [sealed ?? present({ type, thinking, signature, ...author, dialect })];
    }
    case "redacted_thinking": {
      const data = readText(fields["data"], `${path}.data`);
      return [unsealed(data, `${path}.data`) ?? present({ type, data, ...author, dialect })];
    }
    case "tool_use":
      return [callFromAnthropic(fields, path)];
    default: {
      if (onlyUsers.includes(type))
        throw invalidField(`${path}.type`, `is ${type}, which only a user message may hold`);
      return [{ type: "unknown", unknownType: type, dialect, raw: Buffer.from(JSON.stringify(fields), "utf8") }];
    }
  }
}

const dialect = "anthropic-messages";

function unsealed(text: string, path: string): SealableBlock | undefined {
  if (!isSealedReasoning(text)) return undefined;
  const block = openBlock(text);
  if (block === undefined) throw invalidField(path, "is damaged; send it back as it came");
  return block;
}

function callFromAnthropic(fields: JsonObject, path: string): ToolUseBlock {
  return {
    type: "tool_use",
    id: readFilledText(fields["id"], `${path}.id`),
    name: readFilledText(fields["name"], `${path}.name`),
    input: JSON.stringify(readOptionalObject(fields["input"], `${path}.input`) ?? {}),
  };
}
