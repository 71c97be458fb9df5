#!/usr/bin/env node
// Starts the program toolyard of the package for this system, which npm has installed beside this one.
"use strict";
const { spawn, spawnSync } = require("node:child_process");
const { constants } = require("node:os");

const pkg = `@toolyard/${process.platform}-${process.arch}`;
let program;
try {
  program = require.resolve(`${pkg}/bin/toolyard${process.platform === "win32" ? ".exe" : ""}`);
} catch {
  console.error(`toolyard: the package ${pkg} is not installed. If there is one for this system, install toolyard again ` +
    "and let npm install optional dependencies; otherwise build it with Go: " +
    "go install github.com/toolyard/toolyard/cmd/toolyard@latest");
  process.exit(1);
}

const child = spawn(program, process.argv.slice(2), { stdio: "inherit" });
// A supervisor signals this process alone, or the program too: that takes the same signal within a second for one. The
// program ends when it has tidied up.
for (const signal of ["SIGTERM", "SIGHUP"]) {
  process.on(signal, () => child.kill(signal));
}
// A terminal signals both, and a program that is told again later ends on the spot. So the first SIGINT is passed on only
// where no terminal has sent it.
let told = false;
process.on("SIGINT", () => {
  if (told || !inForeground()) child.kill("SIGINT");
  told = true;
});

// inForeground says whether a terminal's Ctrl-C comes to this process, and so to the program.
function inForeground() {
  if (process.platform === "win32") return true; // where kill does not let a program tidy up
  const [own, foreground] = String(spawnSync("ps", ["-o", "pgid=,tpgid=", "-p", String(process.pid)]).stdout)
    .trim().split(/\s+/);
  return own !== "" && own === foreground;
}
child.on("error", (err) => {
  console.error(`toolyard: start ${program}: ${err.message}`);
  process.exit(1);
});
child.on("exit", (code, signal) => process.exit(signal ? 128 + constants.signals[signal] : code));
