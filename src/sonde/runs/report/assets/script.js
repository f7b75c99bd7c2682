"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const find = (selector, within = document) => [...within.querySelectorAll(selector)];
  const svgNode = (name, attributes) => {
    const node = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    return node;
  };
  const make = (name, text, attributes = {}) => {
    const node = document.createElement(name);
    if (text !== undefined) node.textContent = text;
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    return node;
  };

  // Choices stay when a page that follows a run renews itself
  const storeKey = "sonde-report:" + location.pathname;
  const load = () => { try { return JSON.parse(sessionStorage.getItem(storeKey)) || {}; } catch { return {}; } };
  const choices = load();
  const keep = (key, value) => {
    choices[key] = value;
    try { sessionStorage.setItem(storeKey, JSON.stringify(choices)); } catch { /* private mode */ }
  };

  // Runs and seeds to show
  const hidden = new Set(choices.hidden || []);
  const applyHidden = () => {
    for (const line of find("g.s")) {
      const number = [...line.classList].find((name) => /^s\d+$/.test(name));
      line.style.display = hidden.has(number) ? "none" : "";
    }
    for (const button of find("button.toggle[data-s]")) button.setAttribute("aria-pressed", String(!hidden.has(button.dataset.s)));
  };
  for (const chip of find("#legend .toggle[data-s]")) {
    const button = make("button", chip.textContent, { type: "button", class: chip.className, "data-s": chip.dataset.s, "aria-pressed": "true" });
    button.title = "Show or hide " + chip.textContent;
    button.addEventListener("click", () => {
      const number = button.dataset.s;
      hidden.has(number) ? hidden.delete(number) : hidden.add(number);
      keep("hidden", [...hidden]);
      applyHidden();
    });
    chip.replaceWith(button);
  }
  applyHidden();
  if (document.querySelector("path.seeds")) {
    const button = make("button", "each seed", { type: "button", class: "toggle plain", "aria-pressed": "false" });
    const apply = (on) => {
      document.body.classList.toggle("show-seeds", on);
      button.setAttribute("aria-pressed", String(on));
    };
    button.addEventListener("click", () => { keep("seeds", !choices.seeds); apply(choices.seeds); });
    document.getElementById("legend").append(button);
    apply(Boolean(choices.seeds));
  }

  // Which metrics to show
  const grid = document.querySelector("#curves .charts");
  const more = document.getElementById("more-metrics");
  if (grid) {
    const extra = more ? find(".chart", more) : [];
    const shown = choices.metrics || {};
    const chooser = make("details", undefined, { class: "chooser" });
    const list = make("div");
    chooser.append(make("summary", "Choose metrics"), list);
    for (const chart of [...find(".chart", grid), ...extra]) {
      const on = chart.id in shown ? shown[chart.id] : !extra.includes(chart);
      grid.append(chart);
      chart.hidden = !on;
      const box = make("input", undefined, { type: "checkbox" });
      box.checked = on;
      box.addEventListener("change", () => {
        chart.hidden = !box.checked;
        shown[chart.id] = box.checked;
        keep("metrics", shown);
      });
      const label = make("label");
      label.append(box, chart.querySelector("h3").textContent);
      list.append(label);
    }
    grid.before(chooser);
    if (more) more.remove();
  }

  // Values under the pointer, or by the arrow keys
  const tip = document.getElementById("tip");
  const showAt = (svg, chart, round) => {
    const cursor = svg.querySelector(".cursor"), [left, top, right, bottom] = chart.box, x = chart.px[round];
    cursor.replaceChildren(svgNode("line", { x1: x, x2: x, y1: top, y2: bottom }));
    tip.replaceChildren(make("b", chart.title + ", " + chart.xt + " " + round));
    for (const line of chart.lines) {
      const at = line.x.indexOf(round);
      if (at < 0 || hidden.has("s" + line.s)) continue;
      if (line.y[at] !== null) cursor.append(svgNode("circle", { cx: x, cy: line.y[at], r: 4.5, class: "s" + line.s }));
      const row = make("span");
      row.append(make("i", undefined, { class: "s" + line.s }), line.n + ": " + line.t[at]);
      tip.append(row);
    }
    tip.hidden = false;
    const box = svg.getBoundingClientRect(), scale = box.width / svg.viewBox.baseVal.width;
    const at = box.left + x * scale, size = tip.getBoundingClientRect();
    const beside = at + 14 + size.width < innerWidth ? at + 14 : at - 14 - size.width;
    tip.style.left = Math.max(6, Math.min(beside, innerWidth - size.width - 6)) + "px";
    tip.style.top = Math.max(6, Math.min(box.top + top * scale, innerHeight - size.height - 6)) + "px";
  };
  const hide = (svg) => { svg.querySelector(".cursor").replaceChildren(); tip.hidden = true; };
  for (const svg of find("svg[data-chart]")) {
    const chart = data.charts[svg.dataset.chart];
    if (!chart) continue;
    const rounds = Object.keys(chart.px).map(Number).sort((a, b) => a - b);
    let current = rounds.length - 1;
    const near = (event) => {
      const box = svg.getBoundingClientRect(), x = (event.clientX - box.left) * svg.viewBox.baseVal.width / box.width;
      current = rounds.reduce((best, round, i) => Math.abs(chart.px[round] - x) < Math.abs(chart.px[rounds[best]] - x) ? i : best, 0);
      showAt(svg, chart, rounds[current]);
    };
    svg.addEventListener("pointermove", near);
    svg.addEventListener("pointerdown", near);
    svg.addEventListener("pointerleave", () => hide(svg));
    svg.addEventListener("blur", () => hide(svg));
    svg.addEventListener("keydown", (event) => {
      const moves = { ArrowLeft: current - 1, ArrowRight: current + 1, Home: 0, End: rounds.length - 1 };
      if (event.key === "Escape") return hide(svg);
      if (!(event.key in moves)) return;
      event.preventDefault();
      current = Math.max(0, Math.min(rounds.length - 1, moves[event.key]));
      showAt(svg, chart, rounds[current]);
    });
    for (const title of find("circle > title", svg)) title.remove();  // the tip says it
  }

  // Which two coordinates of the states to show, and what the colours mean
  const states = data.states, controls = document.getElementById("states-controls");
  if (states && controls) {
    const pick = (text, names, chosen, key) => {
      const select = make("select"), label = make("label", text);
      names.forEach((name, i) => select.append(make("option", name, { value: i })));
      select.value = names.length > chosen ? chosen : 0;
      select.addEventListener("change", () => { keep(key, Number(select.value)); draw(); });
      label.append(select);
      controls.append(label);
      return select;
    };
    const saved = (key, fallback, count) => Number.isInteger(choices[key]) && choices[key] < count ? choices[key] : fallback;
    const count = states.names.length;
    const xs = pick("across", states.names, saved("x", 0, count), "x");
    const ys = pick("up", states.names, saved("y", 1, count), "y");
    const colours = pick("colour", ["round", "remaining uncertainty there"], saved("colour", 0, 2), "colour");
    const format = (value) => Number(value.toPrecision(6)).toString().replace("-", "\u2212");
    const [left, top, right, bottom] = states.box;
    const every = Object.values(states.runs).flatMap((run) => run.uncertainty).filter((value) => value > 0);
    const [least, most] = [Math.min(...every), Math.max(...every)];
    const shadeOf = (run, i, by) => {
      if (by === 0) return run.rounds[i] === 0 ? "i" : Math.round((run.rounds[i] - 1) / Math.max(states.rounds - 1, 1) * 11);
      const share = most > least ? Math.log(Math.max(run.uncertainty[i], least) / least) / Math.log(most / least) : 0;
      return Math.round(share * 11);
    };
    const draw = () => {
      const [a, b, by] = [Number(xs.value), Number(ys.value), Number(colours.value)];
      const place = (i, value, from, to) => {
        const [low, high] = states.limits[i];
        return Math.round((from + (value - low) / (high - low) * (to - from)) * 10) / 10;
      };
      document.getElementById("key-low").textContent = by ? "uncertainty " + Number(least.toPrecision(2)) : "round 1";
      document.getElementById("key-high").textContent = by ? Number(most.toPrecision(2)) + " state units" : "round " + states.rounds;
      for (const svg of find("svg[data-states]")) {
        const run = states.runs[svg.dataset.states], field = svg.querySelector(".field");
        if (field) field.style.display = a === 0 && b === 1 ? "" : "none";
        const frame = svg.querySelector(".frame");
        frame.replaceChildren();
        const named = a === 0 && states.named.length ? states.named.map(([at, word]) => [at, word.split("\n")[0]])
          : states.ticks[a].map((at) => [at, format(at)]);
        for (const [at, word] of named) {
          const node = svgNode("text", { x: place(a, at, left, right), y: bottom + 16, class: "tick middle" });
          node.textContent = word;
          frame.append(node);
        }
        for (const at of states.ticks[b]) {
          const node = svgNode("text", { x: left - 6, y: place(b, at, bottom, top) + 4, class: "tick end" });
          node.textContent = format(at);
          frame.append(node);
        }
        svg.querySelector(".xlabel").textContent = states.names[a];
        svg.querySelector(".ylabel").textContent = states.names[b];
        const radius = run.rounds.length <= 500 ? 3.2 : 2.4;
        svg.querySelector(".points").replaceChildren(...run.rounds.map((_, i) => svgNode("circle", {
          cx: place(a, run.columns[a][i], left, right), cy: place(b, run.columns[b][i], bottom, top), r: radius,
          class: "p r" + shadeOf(run, i, by),
        })));
      }
    };
    if (xs.value !== "0" || ys.value !== "1" || colours.value !== "0") draw();
  }

  // A film does not start by itself for readers who want little motion
  if (matchMedia("(prefers-reduced-motion: reduce)").matches) {
    for (const film of find("video")) { film.removeAttribute("autoplay"); film.pause(); }
  }

  // The page of a running exploration renews itself; the place on the page and open parts stay
  const seconds = Number(document.body.dataset.renew);
  if (seconds) {
    const opened = () => find("details").map((part) => part.open);
    if (Array.isArray(choices.opened)) find("details").forEach((part, i) => { if (i in choices.opened) part.open = choices.opened[i]; });
    if (choices.scroll) scrollTo({ top: choices.scroll, behavior: "instant" });
    const renew = () => {
      if (document.hidden || document.activeElement instanceof HTMLSelectElement) return setTimeout(renew, 1000);
      keep("scroll", scrollY);
      keep("opened", opened());
      location.reload();
    };
    setTimeout(renew, 1000 * seconds);
  } else if (choices.scroll) {
    scrollTo({ top: choices.scroll, behavior: "instant" });
    keep("scroll", 0);
  }
})();
