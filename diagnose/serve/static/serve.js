"use strict";
// What a page does beyond its forms: files and folders by drag and drop, progress, cancelling, dark.
(() => {
  const byId = (id) => document.getElementById(id);
  const root = document.documentElement;
  const API = "/api/v1/diagnoses";

  document.querySelectorAll(".script").forEach((element) => { element.hidden = false; });

  const wide = window.matchMedia("(prefers-color-scheme: dark)");
  const dark = () => (root.dataset.theme || (wide.matches ? "dark" : "light")) === "dark";
  const theme = byId("theme");
  const label = () => { theme.textContent = dark() ? "Light" : "Dark"; };
  theme.setAttribute("aria-label", "Switch between light and dark");
  theme.addEventListener("click", () => {
    root.dataset.theme = dark() ? "light" : "dark";
    document.cookie = `diagnose_theme=${root.dataset.theme}; path=/; max-age=31536000; samesite=lax`;
    label();
  });
  wide.addEventListener("change", label);
  label();

  const size = (bytes) => {
    for (const unit of ["B", "KiB", "MiB"]) {
      if (bytes < 1024) return `${Math.round(bytes)} ${unit}`;
      bytes /= 1024;
    }
    return `${bytes.toFixed(1)} GiB`;
  };
  const stage = byId("stage");
  const bar = byId("bar");
  const say = (text, share) => {
    if (stage.textContent !== text) stage.textContent = text;
    if (share === undefined) bar.removeAttribute("value");
    else bar.value = share;
  };

  // Follows a job until it has a result, and goes to it.
  const follow = (id, ended) => {
    const events = new EventSource(`${API}/${id}/events`);
    events.addEventListener("status", (event) => {
      const job = JSON.parse(event.data);
      if (job.state === "queued") say(`Waiting: ${job.position} in the queue`);
      else if (job.state === "running") {
        const { stage: now, done, total, read, size: bytes } = job.progress;
        const told = [now];
        if (total > 1) told.push(`log ${Math.min(done + 1, total)} of ${total}`);
        if (bytes) told.push(`${size(read)} of ${size(bytes)}`);
        const logs = Math.max(total, 1);
        say(told.join(", "), told.length > 1 ? (done + (bytes ? read / bytes : 0)) / logs : undefined);
      } else {
        events.close();
        location.replace(`/d/${id}`);
      }
    });
    events.addEventListener("deleted", () => { events.close(); if (ended) ended(); else location.replace("/"); });
    return events;
  };

  const waiting = byId("waiting");
  if (waiting) follow(waiting.dataset.id);

  // Two boxes are ticked, or the button does nothing.
  const choice = byId("choice");
  if (choice) {
    const button = byId("compare");
    const boxes = [...choice.querySelectorAll('input[type="checkbox"]')];
    const count = () => {
      const ticked = boxes.filter((box) => box.checked).length;
      button.disabled = ticked !== 2;
      boxes.forEach((box) => { box.disabled = ticked === 2 && !box.checked; });
      byId("compare-hint").textContent = ticked === 2 ? "" : "Tick two of them.";
    };
    choice.addEventListener("change", count);
    count();
  }

  const form = byId("paste");
  if (form) {
    const text = byId("text");
    const input = byId("files");
    const chosen = byId("chosen");
    const sending = byId("sending");
    const problem = byId("problem");
    let files = []; // { file, path }

    const fail = (message) => { problem.textContent = message; problem.hidden = !message; };
    const shown = 100;
    const list = () => {
      chosen.replaceChildren();
      files.slice(0, shown).forEach((item, index) => {
        const row = document.createElement("li");
        const what = document.createElement("span");
        what.className = "what";
        what.textContent = item.path;
        const bytes = document.createElement("span");
        bytes.className = "size";
        bytes.textContent = size(item.file.size);
        const remove = document.createElement("button");
        remove.type = "button";
        remove.className = "quiet";
        remove.textContent = "Remove";
        remove.setAttribute("aria-label", `Remove ${item.path}`);
        remove.addEventListener("click", () => { files.splice(index, 1); list(); });
        row.append(what, bytes, remove);
        chosen.append(row);
      });
      if (files.length > shown) {
        const row = document.createElement("li");
        row.textContent = `and ${files.length - shown} more`;
        chosen.append(row);
      }
      chosen.hidden = !files.length;
    };
    const add = (items) => {
      fail("");
      const known = new Set(files.map((item) => item.path));
      files = files.concat(items.filter((item) => !known.has(item.path)));
      list();
    };

    input.addEventListener("change", () => {
      add([...input.files].map((file) => ({ file, path: file.webkitRelativePath || file.name })));
      input.value = "";
    });
    const folder = document.createElement("input");
    folder.type = "file";
    folder.webkitdirectory = true;
    folder.hidden = true;
    folder.id = "folder-input";
    folder.setAttribute("aria-hidden", "true");
    form.append(folder);
    byId("folder").addEventListener("click", () => folder.click());
    folder.addEventListener("change", () => {
      add([...folder.files].map((file) => ({ file, path: file.webkitRelativePath || file.name })));
      folder.value = "";
    });

    // Everything below a dropped folder; a folder is read in steps of about a hundred entries.
    const walk = async (entry, above, found) => {
      const path = above + entry.name;
      if (entry.isFile) {
        const file = await new Promise((done, failed) => entry.file(done, failed));
        found.push({ file, path });
        return;
      }
      const reader = entry.createReader();
      for (;;) {
        const some = await new Promise((done, failed) => reader.readEntries(done, failed));
        if (!some.length) return;
        for (const inner of some) await walk(inner, `${path}/`, found);
      }
    };
    let depth = 0;
    const over = (by) => { depth = Math.max(0, depth + by); root.classList.toggle("dropping", depth > 0); };
    window.addEventListener("dragenter", (event) => { event.preventDefault(); over(1); });
    window.addEventListener("dragleave", () => over(-1));
    window.addEventListener("dragover", (event) => event.preventDefault());
    window.addEventListener("drop", async (event) => {
      depth = 0;
      over(0);
      const items = [...event.dataTransfer.items].filter((item) => item.kind === "file");
      if (!items.length) return; // text goes into the box by itself
      event.preventDefault();
      const entries = items.map((item) => item.webkitGetAsEntry ? item.webkitGetAsEntry() : null);
      const plain = items.map((item) => item.getAsFile());
      const found = [];
      try {
        for (let at = 0; at < entries.length; at += 1) {
          if (entries[at]) await walk(entries[at], "", found);
          else if (plain[at]) found.push({ file: plain[at], path: plain[at].name });
        }
      } catch (error) {
        fail(`A dropped folder cannot be read: ${error.message || error.name}`);
      }
      add(found);
    });

    let request = null;
    let events = null;
    let job = null;
    const idle = () => {
      request = events = job = null;
      sending.hidden = true;
      form.hidden = false;
    };
    byId("cancel").addEventListener("click", () => {
      if (request) request.abort();
      if (events) events.close();
      if (job) fetch(`${API}/${job}`, { method: "DELETE" });
      idle();
      text.focus();
    });
    const send = () => {
      const total = files.reduce((sum, item) => sum + item.file.size, 0);
      if (total > Number(form.dataset.upload)) {
        fail(`These are ${size(total)}, more than the ${size(Number(form.dataset.upload))} that one upload may have.`);
        return;
      }
      const data = new FormData();
      data.append("title", byId("title").value);
      if (text.value.trim()) data.append("text", text.value);
      files.forEach(({ file, path }) => data.append("files", file, path));
      fail("");
      form.hidden = true;
      sending.hidden = false;
      say("Uploading", 0);
      byId("cancel").focus();
      request = new XMLHttpRequest();
      request.open("POST", API);
      request.responseType = "json";
      request.upload.addEventListener("progress", (event) => {
        if (event.lengthComputable) say(`Uploading, ${size(event.loaded)} of ${size(event.total)}`, event.loaded / event.total);
      });
      request.upload.addEventListener("load", () => say("Uploaded"));
      request.addEventListener("error", () => { idle(); fail("The upload broke off. Is the server there?"); });
      request.addEventListener("load", () => {
        const { status, response } = request;
        if (status === 202 || status === 200) {
          job = response.id;
          history.replaceState(null, "", location.pathname);
          events = follow(job, idle);
          return;
        }
        idle();
        fail(response && response.error ? response.error.message : `The server answers ${status}.`);
      });
      request.send(data);
    };
    form.addEventListener("submit", (event) => {
      if (files.length) {
        event.preventDefault();
        send();
      } else if (!text.value.trim()) {
        event.preventDefault();
        fail("There is nothing to diagnose: paste a log or choose files.");
        text.focus();
      } else {
        byId("send").disabled = true;
      }
    });
    window.addEventListener("pageshow", () => { byId("send").disabled = false; });
    text.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit();
    });
  }
  root.dataset.ready = "";
})();
