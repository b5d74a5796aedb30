// The client of `tilelet lsp`: starts the server, and passes its two commands on.

const vscode = require("vscode");
const { LanguageClient } = require("vscode-languageclient/node");

let client;

function makeClient() {
  const settings = vscode.workspace.getConfiguration("tilelet");
  const [command, ...args] = settings.get("command");
  const server = { command, args: [...args, "-p", settings.get("platform")] };
  return new LanguageClient("tilelet", "Tilelet", server, {
    documentSelector: [{ scheme: "file", language: "python" }],
  });
}

async function start() {
  client = makeClient();
  try {
    await client.start();
  } catch (problem) {
    const text = 'Tilelet: the language server did not start. Install it: pip install "tilelet[lsp]"';
    vscode.window.showErrorMessage(`${text} (${problem.message})`);
  }
}

function atCursor(command) {
  const editor = vscode.window.activeTextEditor;
  if (!editor || !client) return undefined;
  const uri = editor.document.uri.toString();
  const given = command === "tilelet.openPage" ? [uri, editor.selection.active.line] : [uri];
  return client.sendRequest("workspace/executeCommand", { command, arguments: given });
}

async function activate(context) {
  context.subscriptions.push(
    vscode.commands.registerCommand("tilelet.showPage", () => atCursor("tilelet.openPage")),
    vscode.commands.registerCommand("tilelet.runScript", () => atCursor("tilelet.runForValues")),
    vscode.commands.registerCommand("tilelet.restart", async () => {
      await client?.stop();
      await start();
    }),
  );
  await start();
}

function deactivate() {
  return client?.stop();
}

module.exports = { activate, deactivate };
