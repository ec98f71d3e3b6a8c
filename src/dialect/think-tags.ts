const opening = "<think>";
const closing = "</think>";
/** White space before an opening tag is waited through up to this many characters. */
const mostLeadingSpace = 256;

export interface TaggedPiece {
  readonly type: "text" | "thinking";
  readonly text: string;
}

/**
 * Tells thinking in `<think>` tags from the answer, however the text is cut. Tags count only where no answer has begun,
 * so that an answer may write of them. A pair inside a pair is part of the thinking, and thinking that is never closed
 * goes to the end. What came before a closing tag that nothing opened has been passed on as text already; only the tag
 * is taken out. Newlines after a tag belong to the tag.
 */
export function thinkTags(): { add(text: string): TaggedPiece[]; flush(): TaggedPiece[] } {
  let place: "start" | "thinking" | "text" = "start";
  let depth = 0;
  let tagSeen = false;
  let afterTag = false;
  let held = "";

  const enter = (next: typeof place, rest: string): string => {
    place = next;
    tagSeen = true;
    afterTag = true;
    return rest;
  };

  const read = (whole: string, isLast: boolean): TaggedPiece[] => {
    const pieces: TaggedPiece[] = [];
    const push = (type: TaggedPiece["type"], text: string) => {
      if (text !== "") pieces.push({ type, text });
    };
    /** All that can't be the beginning of one of the tags. */
    const pushAllBut = (type: TaggedPiece["type"], text: string, tags: readonly string[]) => {
      const kept = isLast ? 0 : Math.max(0, ...tags.map((tag) => overlap(text, tag)));
      push(type, text.slice(0, text.length - kept));
      held = text.slice(text.length - kept);
    };

    held = "";
    let rest = whole;
    while (rest !== "") {
      if (afterTag) {
        rest = rest.replace(/^[\r\n]+/, "");
        if (rest === "") break;
        afterTag = false;
      }
      if (place === "start") {
        const space = /^\s*/.exec(rest)?.[0].length ?? 0;
        const begun = rest.slice(space);
        if (space <= mostLeadingSpace && begun.startsWith(opening)) {
          depth = 1;
          rest = enter("thinking", begun.slice(opening.length));
        } else if (space <= mostLeadingSpace && opening.startsWith(begun) && !isLast) {
          held = rest;
          break;
        } else {
          place = "text";
        }
      } else if (place === "thinking") {
        const close = rest.indexOf(closing);
        const open = rest.indexOf(opening);
        if (open >= 0 && (close < 0 || open < close)) {
          depth++;
          push("thinking", rest.slice(0, open + opening.length));
          rest = rest.slice(open + opening.length);
        } else if (close >= 0) {
          depth--;
          push("thinking", rest.slice(0, depth === 0 ? close : close + closing.length));
          rest = rest.slice(close + closing.length);
          if (depth === 0) rest = enter("start", rest);
        } else {
          pushAllBut("thinking", rest, [opening, closing]);
          break;
        }
      } else {
        const close = tagSeen ? -1 : rest.indexOf(closing);
        if (close < 0) {
          pushAllBut("text", rest, tagSeen ? [] : [closing]);
          break;
        }
        push("text", rest.slice(0, close));
        rest = enter("text", rest.slice(close + closing.length));
      }
    }
    return pieces;
  };

  return {
    /** What is certain by now; the beginning of a tag waits for the next text. */
    add: (text) => read(held + text, false),
    /** What waited, as what it is without more: at the end, or where something else comes between. */
    flush: () => read(held, true),
  };
}

/** How many characters at the end of the text begin the tag. */
function overlap(text: string, tag: string): number {
  for (let length = Math.min(tag.length - 1, text.length); length > 0; length--) {
    if (text.endsWith(tag.slice(0, length))) return length;
  }
  return 0;
}
