// What the pages do better with a script: times in the reader's zone, buttons that
// copy, and rooms that go on while they are read. All of it works without.
(() => {
  "use strict";

  const zoned = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });
  const month = new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric" });
  const clock = new Intl.DateTimeFormat(undefined, { timeStyle: "short" });
  const brief = { format: (at) => month.format(at).replace(/\s/g, "\u00a0") + " " + clock.format(at).replace(/\s/g, "\u00a0") };
  const dated = new Intl.DateTimeFormat(undefined, { dateStyle: "medium" });

  // improve is done for the page, and for each piece that comes later.
  function improve(root) {
    for (const time of root.querySelectorAll("time[datetime]")) {
      const at = new Date(time.dateTime);
      if (isNaN(at)) continue;
      const form = time.dataset.form;
      const short = form === "brief" && at.getFullYear() === new Date().getFullYear();
      time.textContent = (form === "day" ? dated : short ? brief : zoned).format(at);
    }
    if (!navigator.clipboard) return;
    for (const code of root.querySelectorAll("code.hash[data-copy], .command code")) {
      if (code.dataset.ready) continue;
      code.dataset.ready = "1";
      copier(code, code.dataset.copy || code.textContent);
    }
    for (const code of root.querySelectorAll("code.agent[data-copy]")) {
      code.addEventListener("dblclick", () => navigator.clipboard.writeText(code.dataset.copy));
    }
  }

  const text = document.body.dataset;

  function copier(code, value) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "copy";
    button.textContent = text.copy;
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(value);
      button.textContent = text.copied;
      setTimeout(() => { button.textContent = text.copy; }, 1500);
    });
    (code.closest(".command") || code).after(button);
    const box = code.closest(".command");
    if (box) box.append(button);
  }

  // follow asks the room for its next record, and this daemon for how it looks.
  async function follow(line) {
    const { moves, path, from } = line.dataset;
    let after = Number(line.dataset.after);
    let wait = 1000;
    const pause = (ms) => new Promise((done) => setTimeout(done, ms));
    const seen = () => new Promise((done) => {
      if (!document.hidden) return done();
      const back = () => { if (!document.hidden) { document.removeEventListener("visibilitychange", back); done(); } };
      document.addEventListener("visibilitychange", back);
    });
    const say = (word, lost) => {
      line.hidden = false;
      line.classList.toggle("lost", lost);
      if (line.textContent !== word) line.textContent = word;
    };
    say(line.dataset.wordOn, false);
    for (;;) {
      await seen();
      try {
        const moved = await fetch(`${moves}?after_seq=${after}&limit=1&wait=25`, { cache: "no-store" });
        if (moved.status === 404 || moved.status === 410 || moved.status === 451) return location.reload();
        if (!moved.ok) throw new Error(moved.status);
        if ((await moved.json()).length > 0) {
          const answer = await fetch(`${path}?after=${after}&from=${from}&fragment=1`, { headers: { Accept: "text/html" }, cache: "no-store" });
          if (!answer.ok) throw new Error(answer.status);
          const piece = new DOMParser().parseFromString(await answer.text(), "text/html").querySelector(".fragment");
          place(piece);
          after = Number(piece.dataset.last);
          if (piece.dataset.full === "true") return say(line.dataset.wordFull, false);
          if (piece.dataset.live !== "true") { line.hidden = true; return; }
        }
        say(line.dataset.wordOn, false);
        wait = 1000;
      } catch {
        say(line.dataset.wordOff, true);
        await pause(wait + Math.random() * 500);
        wait = Math.min(wait * 2, 60000);
      }
    }
  }

  function place(piece) {
    improve(piece);
    for (const list of piece.querySelectorAll("[data-append]")) {
      const to = document.getElementById(list.dataset.append);
      for (const item of [...list.children]) {
        if (document.getElementById(item.id)) continue;
        item.classList.add("new");
        to.append(document.adoptNode(item));
      }
    }
    for (const box of piece.querySelectorAll("[data-replace]")) {
      const to = document.getElementById(box.dataset.replace);
      const by = box.firstElementChild;
      if (to && by && to.innerHTML !== by.innerHTML) to.replaceWith(document.adoptNode(by));
    }
  }

  improve(document);
  const line = document.getElementById("live");
  if (line) follow(line);
})();
