import { createMessageConnection, StreamMessageReader, StreamMessageWriter } from "vscode-jsonrpc/node";

// A language server that tells what is wrong only by itself, and misbehaves where a word of the file asks for it.
const connection = createMessageConnection(
  new StreamMessageReader(process.stdin),
  new StreamMessageWriter(process.stdout),
);
const texts = new Map<string, string>();

function take(uri: string, version: number, text: string): void {
  texts.set(uri, text);
  const found = text.split("\n").flatMap((line, index) => {
    const column = line.indexOf("wrong");
    if (column === -1) return [];
    const range = { start: { line: index, character: column }, end: { line: index, character: column + 5 } };
    return [{ range, severity: 2, message: `wrong in version ${version}` }];
  });
  // It takes its time, as checkers do.
  const tell = () =>
    connection.sendNotification("textDocument/publishDiagnostics", { uri, version, diagnostics: found });
  setTimeout(() => void tell(), 50);
}

connection.onRequest("initialize", () => ({
  serverInfo: { name: "fake", version: "1.2" },
  capabilities: { hoverProvider: true, textDocumentSync: 1 },
}));
connection.onNotification("textDocument/didOpen", ({ textDocument }) =>
  take(textDocument.uri, textDocument.version, textDocument.text),
);
connection.onNotification("textDocument/didChange", ({ textDocument, contentChanges }) =>
  take(textDocument.uri, textDocument.version, contentChanges[0].text),
);
connection.onRequest("textDocument/hover", ({ textDocument, position }) => {
  const text = texts.get(textDocument.uri) ?? "";
  if (text.includes("hang")) return new Promise(() => undefined);
  if (text.includes("exit")) process.exit(3);
  if (text.includes("huge")) return { contents: "x".repeat(40 * 1024 * 1024) };
  return { contents: { kind: "plaintext", value: JSON.stringify(position) } };
});
connection.onRequest("shutdown", () => null);
connection.onNotification("exit", () => process.exit(0));
connection.listen();
