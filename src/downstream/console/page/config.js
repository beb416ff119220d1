// The config files: what is wrong with them, and what waits for the next start.
import { post } from "./api.js";
import { h, mono, soft } from "./h.js";
import { button, command } from "./parts.js";
import { state } from "./state.js";
import { clock, counted, said } from "./text.js";
import { attempt, tell, ui } from "./ui.js";

const reload = () => attempt(async () => {
  const done = await post("reload", {});
  if (!done.reloaded) return tell(`The config is not applied: ${done.error}`, true);
  const changes = ["added", "removed", "changed"].filter((each) => (done[each] ?? []).length > 0).map((each) => `${each} ${done[each].join(", ")}`);
  tell(changes.length > 0 ? `The config is read again: ${changes.join("; ")}.` : "The config is read again. Nothing changed.");
});

export function view() {
  const { files = [], problems = [], pending = [], reloads = 0 } = state.config;
  const last = state.reloaded;
  return h("div", { class: "narrow-page" },
    problems.length > 0 && h("div", { class: "reason bad", role: "group", "aria-label": "Problems" }, h("p", null, "The files have mistakes. The config from before them stays in effect."), h("ul", { class: "problems" }, problems.map((each, at) => h("li", { key: at }, mono(said(each)))))),
    h("section", { class: "panel", "aria-label": "Files" }, h("h2", null, "Files"),
      files.length === 0 ? soft("There is no file: the servers come from the command line.") : h("ul", { class: "files" }, files.map((each) => h("li", { key: each }, mono(said(each))))),
      soft(`A change applies within a second.${reloads > 0 ? ` Read again ${reloads === 1 ? "once" : `${reloads} times`}${last ? `, last at ${clock(last.at)}` : ""}.` : ""}`),
      !ui.isReadOnly && files.length > 0 && h("p", null, button("Read it now", reload, {}))),
    pending.length > 0 && h("section", { class: "panel", "aria-label": "Pending" }, h("h2", null, "Waits for the next start"), h("p", null, `${counted(pending.length, "setting")} of `, mono("host"), " changed in the files and ", pending.length === 1 ? "applies" : "apply", " when the daemon starts again:"),
      h("ul", null, pending.map((each) => h("li", { key: each }, mono(said(each)))))),
    h("section", { class: "panel", "aria-label": "Commands" }, h("h2", null, "Change it"), h("p", null, "What adds a program is typed in a terminal:"),
      h("dl", { class: "commands" }, [["add a server", "mcp-host add NAME -- COMMAND"], ["take the last edit back", "mcp-host undo"]].map(([what, typed]) => h("div", { key: typed }, h("dt", null, what), h("dd", null, command(typed)))))));
}
