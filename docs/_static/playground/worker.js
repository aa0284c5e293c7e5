// Runs the planner: Pyodide, with our own sources. It is asked for one answer at a time, and sends nothing anywhere.
import { loadPyodide } from "./pyodide.mjs";

async function start() {
  const here = new URL(".", import.meta.url);
  const [python, response] = await Promise.all([
    loadPyodide({ indexURL: here.href }),
    fetch(new URL("sources.zip", here)),
  ]);
  if (!response.ok) throw new Error(`sources.zip: ${response.status}`);
  python.unpackArchive(await response.arrayBuffer(), "zip", { extractDir: "/sources" });
  return python.runPython(`
import sys
sys.path.insert(0, "/sources")
from playground.answers import answer_json
answer_json
`);
}

// Pyodide never says that its WebAssembly cannot be fetched or compiled, but by an error that nobody catches.
const lost = new Promise((_, failed) => {
  addEventListener("unhandledrejection", ({ reason }) => failed(reason));
  addEventListener("error", ({ message }) => failed(new Error(message)));
});
lost.catch(() => {});
const planner = Promise.race([start(), lost]);
planner.catch(() => {});

onmessage = async ({ data: { number, query, words, changed, wished } }) => {
  try {
    postMessage({ number, answer: JSON.parse((await planner)(query, words, changed, wished)) });
  } catch (error) {
    postMessage({ number, error: String(error.message ?? error) });
  }
};
