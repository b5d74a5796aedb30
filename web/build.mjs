// Builds page.js and page.css into the Python package. `--check` compares them with what is there,
// `--test` bundles the tests into .test/ for `node --test`.
import { build } from "esbuild";
import { readFileSync, readdirSync, rmSync, mkdirSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const out = join(here, "../src/tilelet/report/page");
const mode = process.argv[2] ?? "";

async function bundle(entry, more) {
  const made = await build({
    entryPoints: [join(here, entry)],
    bundle: true,
    write: false,
    target: "es2022",
    charset: "utf8",
    legalComments: "none",
    ...more,
  });
  return made.outputFiles[0].text;
}

if (mode === "--test") {
  rmSync(join(here, ".test"), { recursive: true, force: true });
  mkdirSync(join(here, ".test"));
  for (const name of readdirSync(join(here, "test"))) {
    const text = await bundle(`test/${name}`, { format: "esm", platform: "node" });
    writeFileSync(join(here, ".test", name.replace(/\.ts$/, ".mjs")), text);
  }
} else {
  const script = await bundle("src/main.ts", { format: "iife", minify: true });
  const assets = {
    // Inside an element `</script` would end it, wherever it stands.
    "page.js": script.replace(/<\/(script)/gi, "<\\/$1"),
    "page.css": await bundle("src/page.css", { minify: true }),
  };
  let stale = 0;
  for (const [name, text] of Object.entries(assets)) {
    if (mode === "--check") {
      let there = "";
      try {
        there = readFileSync(join(out, name), "utf8");
      } catch {}
      if (there !== text) {
        console.error(`src/tilelet/report/page/${name} is not what web/ builds: npm run build`);
        stale = 1;
      }
    } else {
      mkdirSync(out, { recursive: true });
      writeFileSync(join(out, name), text);
      console.log(`${name} ${text.length} bytes`);
    }
  }
  process.exitCode = stale;
}
