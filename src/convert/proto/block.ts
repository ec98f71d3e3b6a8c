import { create } from "@bufbuild/protobuf";
import type {
  ContentBlock as ProtoContentBlock,
  ContentPart as ProtoContentPart,
} from "../../../gen/codeagent/v1/code_agent_pb.ts";
import { ContentBlockSchema, ContentPartSchema } from "../../../gen/codeagent/v1/code_agent_pb.ts";
import { invalidField } from "../../chat/error.ts";
import type { AudioBlock, BlockOrigin, ContentBlock, FileBlock, ImageBlock, TextBlock } from "../../chat/message.ts";
import { checkFileData, checkFilled, checkImageDetail, checkImageUrl, quoted } from "../content-check.ts";
import { present, presentList, presentText } from "../present.ts";
import type { Source } from "./field.ts";

/** What a part of a message can be. */
export type PartBlock = TextBlock | ImageBlock | FileBlock | AudioBlock;

/** Whether a block has a form as a part. */
export function isPartBlock(block: ContentBlock): block is PartBlock {
  return block.type === "text" || block.type === "image" || block.type === "file" || block.type === "audio";
}

/**
 * Reads a block.
 * @throws {AgentError} `invalid_request` with the field's path where the block is none we know, or, from a client, holds
 * what no provider takes: a call without id or name, an image without URL, a file without content.
 */
export function blockFromProto(block: ProtoContentBlock, path = "blocks[0]", source: Source = "client"): ContentBlock {
  const checked = source === "client";
  switch (block.block.case) {
    case "text":
      return present({
        type: "text",
        text: block.block.value.text,
        phase: presentText(block.block.value.phase),
      });
    case "thinking": {
      const { thinking, signature } = block.block.value;
      return present({
        type: "thinking",
        thinking,
        signature: presentText(signature),
        ...originFromProto(block.block.value),
      });
    }
    case "redactedThinking":
      return { type: "redacted_thinking", data: block.block.value.data, ...originFromProto(block.block.value) };
    case "reasoning": {
      const { content, encrypted, summary, id } = block.block.value;
      return present({
        type: "reasoning",
        content,
        encrypted: presentText(encrypted),
        summary: [...summary],
        id: presentText(id),
        ...originFromProto(block.block.value),
      });
    }
    case "toolUse": {
      const { id, name, input } = block.block.value;
      if (checked) checkFilled(id, `${path}.tool_use.id`);
      if (checked) checkFilled(name, `${path}.tool_use.name`);
      return { type: "tool_use", id, name, input };
    }
    case "toolResult": {
      const { toolUseId, content, isError, parts } = block.block.value;
      return present({
        type: "tool_result",
        toolUseId,
        content,
        isError: isError || undefined,
        parts: presentList(
          parts.map((part, index) => partFromProto(part, `${path}.tool_result.parts[${index}]`, source)),
        ),
      });
    }
    case "image":
      return imageFromProto(block.block.value, `${path}.image`, checked);
    case "file":
      return fileFromProto(block.block.value, `${path}.file`, "data", checked);
    case "audio":
      return audioFromProto(block.block.value, `${path}.audio`, checked);
    case "unknown":
      return { type: "unknown", unknownType: block.block.value.type, ...originFromProto(block.block.value) };
    case undefined:
      throw invalidField(path, "holds no block that this server knows");
    default:
      return block.block satisfies never;
  }
}

/** Writes a block. */
export function blockToProto(block: ContentBlock): ProtoContentBlock {
  return create(ContentBlockSchema, { block: oneofOfBlock(block) });
}

type BlockInit = NonNullable<
  Extract<Parameters<typeof create<typeof ContentBlockSchema>>[1], { block?: unknown }>["block"]
>;

function oneofOfBlock(block: ContentBlock): BlockInit {
  switch (block.type) {
    case "text":
      return { case: "text", value: { text: block.text, phase: block.phase ?? "" } };
    case "thinking": {
      const { thinking, signature = "" } = block;
      return { case: "thinking", value: { thinking, signature, ...originToProto(block) } };
    }
    case "redacted_thinking":
      return { case: "redactedThinking", value: { data: block.data, ...originToProto(block) } };
    case "reasoning": {
      const { content, encrypted = "", summary, id = "" } = block;
      return {
        case: "reasoning",
        value: { content, encrypted, summary: [...summary], id, ...originToProto(block) },
      };
    }
    case "tool_use":
      return { case: "toolUse", value: { id: block.id, name: block.name, input: block.input } };
    case "tool_result": {
      const { toolUseId, content, isError = false, parts = [] } = block;
      return { case: "toolResult", value: { toolUseId, content, isError, parts: parts.map(partToProto) } };
    }
    case "image":
      return { case: "image", value: { url: block.url, detail: block.detail ?? "" } };
    case "file": {
      const { data = "", fileId = "", filename = "" } = block;
      return { case: "file", value: { data, fileId, filename } };
    }
    case "audio":
      return { case: "audio", value: { data: block.data, format: block.format } };
    case "unknown":
      return { case: "unknown", value: { type: block.unknownType, ...originToProto(block) } };
    default:
      return block satisfies never;
  }
}

/**
 * Reads a part of a message or of a tool's result.
 * @throws {AgentError} `invalid_request` with the field's path, as `blockFromProto` does.
 */
export function partFromProto(part: ProtoContentPart, path = "parts[0]", source: Source = "client"): PartBlock {
  const checked = source === "client";
  const { partType } = part;
  switch (partType.case) {
    case "text":
      if (checked) checkType(partType.value.type, "text", `${path}.text.type`);
      return { type: "text", text: partType.value.text };
    case "imageUrl":
      if (checked) checkType(partType.value.type, "image_url", `${path}.image_url.type`);
      return imageFromProto(partType.value.imageUrl ?? { url: "", detail: "" }, `${path}.image_url.image_url`, checked);
    case "file": {
      if (checked) checkType(partType.value.type, "file", `${path}.file.type`);
      const { fileData = "", fileId = "", filename = "" } = partType.value.file ?? {};
      return fileFromProto({ data: fileData, fileId, filename }, `${path}.file.file`, "file_data", checked);
    }
    case "inputAudio":
      if (checked) checkType(partType.value.type, "input_audio", `${path}.input_audio.type`);
      return audioFromProto(
        partType.value.inputAudio ?? { data: "", format: "" },
        `${path}.input_audio.input_audio`,
        checked,
      );
    case undefined:
      throw invalidField(path, "holds no part that this server knows; use text, image_url, file or input_audio");
    default:
      return partType satisfies never;
  }
}

/** Writes a part of a message or of a tool's result. */
export function partToProto(block: PartBlock): ProtoContentPart {
  switch (block.type) {
    case "text":
      return create(ContentPartSchema, { partType: { case: "text", value: { type: "text", text: block.text } } });
    case "image": {
      const imageUrl = { url: block.url, detail: block.detail ?? "" };
      return create(ContentPartSchema, { partType: { case: "imageUrl", value: { type: "image_url", imageUrl } } });
    }
    case "file": {
      const file = { fileData: block.data ?? "", fileId: block.fileId ?? "", filename: block.filename ?? "" };
      return create(ContentPartSchema, { partType: { case: "file", value: { type: "file", file } } });
    }
    case "audio": {
      const inputAudio = { data: block.data, format: block.format };
      return create(ContentPartSchema, {
        partType: { case: "inputAudio", value: { type: "input_audio", inputAudio } },
      });
    }
    default:
      return block satisfies never;
  }
}

function imageFromProto(image: { url: string; detail: string }, path: string, checked: boolean): ImageBlock {
  const detail = presentText(image.detail);
  if (checked) checkImageUrl(image.url, `${path}.url`);
  if (checked) checkImageDetail(detail, `${path}.detail`);
  return present({ type: "image", url: image.url, detail });
}

function fileFromProto(
  file: { data: string; fileId: string; filename: string },
  path: string,
  dataField: string,
  checked: boolean,
): FileBlock {
  const data = presentText(file.data);
  const fileId = presentText(file.fileId);
  if (checked && data === undefined && fileId === undefined)
    throw invalidField(path, `is empty; give ${dataField} or file_id`);
  if (checked) checkFileData(data, `${path}.${dataField}`);
  return present({ type: "file", data, fileId, filename: presentText(file.filename) });
}

function audioFromProto(audio: { data: string; format: string }, path: string, checked: boolean): AudioBlock {
  if (checked) checkFilled(audio.data, `${path}.data`);
  if (checked) checkFilled(audio.format, `${path}.format`);
  return { type: "audio", data: audio.data, format: audio.format };
}

function checkType(type: string, expected: string, path: string): void {
  if (type !== "" && type !== expected) throw invalidField(path, `is ${quoted(type)}; must be ${expected}`);
}

function originFromProto(origin: { provider: string; model: string; dialect: string; raw: Uint8Array }): BlockOrigin {
  return present({
    provider: presentText(origin.provider),
    model: presentText(origin.model),
    dialect: presentText(origin.dialect),
    raw: origin.raw.length === 0 ? undefined : origin.raw,
  });
}

function originToProto(origin: BlockOrigin) {
  const { provider = "", model = "", dialect = "", raw = new Uint8Array() } = origin;
  return { provider, model, dialect, raw };
}
