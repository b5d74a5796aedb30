// Bundles the extension and what it imports into dist/extension.js; VS Code itself provides `vscode`.

import { build } from "esbuild";

await build({
  entryPoints: ["src/extension.js"],
  outfile: "dist/extension.js",
  bundle: true,
  platform: "node",
  target: "node18",
  format: "cjs",
  external: ["vscode"],
  minify: true,
  logLevel: "warning",
});
