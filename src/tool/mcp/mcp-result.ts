import type { ToolResult } from "../../chat/tool-result.ts";
import { isRecord } from "../check-value.ts";

/**
 * What a tool of an MCP server said, as text for a model: texts as they are, pictures, sounds and files by what they are and
 * how large, structured content as JSON where there is no text.
 */
export function toolResultFromMcp(server: string, result: unknown): ToolResult {
  if (!isRecord(result)) return { success: false, output: "", error: `the MCP server ${server} gave no result` };
  const content = Array.isArray(result["content"]) ? result["content"] : [];
  const parts = content.map(textOfBlock).filter((text) => text !== "");
  const hasText = content.some((block) => isRecord(block) && block["type"] === "text");
  const structured = result["structuredContent"];
  if (!hasText && structured !== undefined) parts.push(jsonText(structured));
  const output = parts.join("\n");
  if (result["isError"] !== true) return { success: true, output };
  return { success: false, output, error: `the tool of the MCP server ${server} reports a failure` };
}

function textOfBlock(block: unknown): string {
  if (!isRecord(block)) return "";
  switch (block["type"]) {
    case "text":
      return stringOf(block["text"]);
    case "image":
    case "audio":
      return `[${block["type"]}, ${stringOf(block["mimeType"]) || "of an unknown kind"}, ${bytesOf(block["data"])} bytes, not shown]`;
    case "resource_link": {
      const words = [stringOf(block["description"]), stringOf(block["mimeType"])].filter((text) => text !== "");
      const about = words.length === 0 ? "" : ` (${words.join(", ")})`;
      return `[resource ${stringOf(block["name"])}: ${stringOf(block["uri"])}${about}]`;
    }
    case "resource": {
      const resource = isRecord(block["resource"]) ? block["resource"] : {};
      const kind = stringOf(resource["mimeType"]);
      const head = `resource ${stringOf(resource["uri"])}${kind === "" ? "" : `, ${kind}`}`;
      if (typeof resource["text"] === "string") return `[${head}]\n${resource["text"]}`;
      return `[${head}, ${bytesOf(resource["blob"])} bytes, not shown]`;
    }
    default:
      return `[content of the unknown kind ${JSON.stringify(stringOf(block["type"]).slice(0, 80))}]`;
  }
}

function stringOf(value: unknown): string {
  return typeof value === "string" ? value : "";
}

/** How many bytes a text in base64 stands for. */
function bytesOf(base64: unknown): number {
  return typeof base64 === "string" ? Buffer.byteLength(base64, "base64") : 0;
}

function jsonText(value: unknown): string {
  try {
    return JSON.stringify(value, undefined, 2);
  } catch {
    return "[structured content nested too deep]";
  }
}
