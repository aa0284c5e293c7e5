// The page's behaviour. What it shows is made by the planner: when the site was built, or by the worker beside this file.
"use strict";

(() => {
  const page = document.querySelector(".playground");
  const form = page.querySelector("form");
  const shown = page.querySelector(".pg-answer");
  const status = page.querySelector(".pg-status");
  const said = page.querySelector(".pg-said");
  const bar = page.querySelector(".pg-bar");
  const title = page.querySelector(".pg-case");
  const { words, first, size } = JSON.parse(document.getElementById("playground-kept").textContent);
  const known = new Map([[first.query, first]]);
  let asked = 0;
  let planner = null;
  let wished = {};

  const say = (text) => {
    status.textContent = text;
  };

  // -- answers ----------------------------------------------------------------------------------

  /** The answer to one of the 27 cases, which are in a script of their own. */
  async function caseNamed(name) {
    if (!window.playgroundCases) {
      await new Promise((done, failed) => {
        const script = document.createElement("script");
        script.src = `${page.dataset.at}/cases.js`;
        script.onload = done;
        script.onerror = () => failed(new Error("cases.js"));
        document.head.append(script);
      });
    }
    return window.playgroundCases[name];
  }

  /** The planner in its worker, started when it is first needed. */
  function start() {
    const worker = new Worker(`${page.dataset.at}/worker.js`, { type: "module" });
    const waiting = new Map();
    worker.onmessage = ({ data: { number, answer, error } }) => {
      const { done, failed } = waiting.get(number);
      waiting.delete(number);
      if (error === undefined) done(answer);
      else failed(new Error(error));
    };
    worker.onerror = (event) => {
      for (const { failed } of waiting.values()) failed(new Error(event.message || "worker.js"));
      waiting.clear();
    };
    return (number, query, changed) =>
      new Promise((done, failed) => {
        waiting.set(number, { done, failed });
        worker.postMessage({ number, query, words: JSON.stringify(words), changed, wished: JSON.stringify(wished) });
      });
  }

  /** The planner's answer to a setting; `null`: there is no planner, which has been said. */
  async function ask(query, changed) {
    if (!size) {
      say(words["left-out"]);
      return null;
    }
    if (location.protocol === "file:") {
      say(words["from-file"]);
      return null;
    }
    const number = ++asked;
    if (planner === null) {
      planner = start();
      say(words.loading.replace("{size}", size));
    }
    page.setAttribute("aria-busy", "true");
    try {
      const answer = await planner(number, query, changed);
      return number === asked ? answer : null;
    } catch (error) {
      planner = null;
      say(words.failed.replace("{why}", error.message));
      return null;
    } finally {
      if (number === asked) page.removeAttribute("aria-busy");
    }
  }

  // -- what is shown ----------------------------------------------------------------------------

  function show(answer, name, typing = false) {
    known.set(answer.query, answer);
    for (const control of form.elements) {
      if (!control.name) continue;
      const value = answer.values[control.name];
      const impossible = answer.impossible[control.name] ?? {};
      if (control.type === "radio" || control.type === "checkbox") {
        control.checked = control.value === value;
        control.disabled = control.value in impossible && !control.checked;
      } else if (control.value !== value && !(typing && control.type === "text")) {
        control.value = value;
      }
      for (const option of control.options ?? []) option.disabled = option.value in impossible && option.value !== value;
    }
    for (const why of form.querySelectorAll("[data-why]")) {
      why.textContent = [...new Set(Object.values(answer.impossible[why.dataset.why] ?? {}))].join(" ");
    }
    shown.innerHTML = answer.html;
    title.hidden = !name;
    const [id, label, note] = title.children;
    id.textContent = name ?? "";
    label.textContent = name ? words[`title-${name}`] : "";
    note.textContent = words[name] ?? "";
    for (const link of page.querySelectorAll(".pg-cases a")) {
      link.toggleAttribute("aria-current", link.hash === `#${name}`);
    }
    const more = form.querySelector(".pg-more");
    more.open ||= [...more.querySelectorAll("[name]")].some(({ name }) => answer.values[name] !== first.values[name]);
    say([name ? words.first : words.ready, answer.note].filter(Boolean).join(" "));
    said.textContent = answer.said;
    bar.textContent = answer.said;
  }

  /** Show what the address says. */
  async function follow() {
    const said = location.hash.slice(1);
    wished = {};
    if (/^C\d+$/.test(said)) {
      const found = await caseNamed(said);
      if (location.hash !== `#${said}`) return;
      if (found) show(found, said);
      else say(words["no-case"].replace("{what}", said));
    } else if (said.includes("=")) {
      const answer = known.get(said) ?? (await ask(said, ""));
      if (answer) show(answer);
    } else if (!said) {
      show(first, "C13");
    }
  }

  /** The setting that the controls have. */
  const query = () => new URLSearchParams(new FormData(form)).toString();

  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("change", async ({ target }) => {
    const { value } = form.elements.shape;
    const answer = await ask(query(), target.name);
    if (!answer) return;
    if (location.hash !== `#${answer.query}`) history.pushState(null, "", `#${answer.query}`);
    wished = answer.wished;
    show(answer, undefined, form.elements.shape.value !== value); // what was typed meanwhile stays
  });
  addEventListener("hashchange", follow);
  page.querySelector(".pg-cases ul").addEventListener("click", ({ target }) => {
    if (target.closest("a")) target.closest("details").open = false;
  });

  bar.addEventListener("click", () => shown.firstElementChild.scrollIntoView());

  // -- buttons ----------------------------------------------------------------------------------

  const actions = {
    /** Draw a write to one side, or no write when the button is pressed again. */
    write(button) {
      const pressed = button.getAttribute("aria-pressed") !== "true";
      const group = button.parentElement;
      for (const each of group.querySelectorAll("button")) {
        each.setAttribute("aria-pressed", String(pressed && each === button));
      }
      const written = pressed ? button.dataset.write : "";
      for (const figure of shown.querySelectorAll(".pg-figure")) figure.hidden = figure.dataset.written !== written;
      group.querySelector("[role=status]").textContent = pressed ? button.dataset.said : words["write-start"];
    },

    /** Go one step on, or back. */
    walk(button) {
      const section = button.closest("section");
      const steps = [...section.querySelectorAll("li")];
      const at = steps.findIndex((step) => step.hasAttribute("aria-current")) + Number(button.dataset.walk);
      const where = section.querySelector("[role=status]");
      steps.forEach((step, number) => {
        step.toggleAttribute("aria-current", number === at);
        step.querySelector("pre").hidden = number !== at;
      });
      where.textContent = at < 0 ? where.dataset.before : steps[at].dataset.where;
      const [back, forward] = section.querySelectorAll("[data-walk]");
      back.disabled = at < 0;
      forward.disabled = at === steps.length - 1;
      if (button.disabled) (button === back ? forward : back).focus();
    },

    /** Copy a piece of code. */
    async paste(button) {
      const before = button.textContent;
      await navigator.clipboard.writeText(button.parentElement.querySelector("pre").textContent);
      button.textContent = button.dataset.paste;
      setTimeout(() => {
        button.textContent = before;
      }, 1500);
    },
  };

  shown.addEventListener("click", ({ target }) => {
    const button = target.closest("button");
    for (const [name, act] of Object.entries(actions)) {
      if (button && name in button.dataset) act(button);
    }
  });

  if (location.hash) follow();
})();
