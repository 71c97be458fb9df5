// Makes the npm packages of a release: node npm/build.mjs DIST OUT
//
// DIST is GoReleaser's directory, with artifacts.json and metadata.json. OUT gets a package for each system, and the
// package toolyard, which starts the program of the one that fits. "npm publish" each of them, toolyard last.
import { chmodSync, copyFileSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";

const [dist, out] = process.argv.slice(2);
if (!dist || !out) {
  console.error("usage: node npm/build.mjs DIST OUT");
  process.exit(2);
}
const here = dirname(fileURLToPath(import.meta.url));
const platforms = { linux: "linux", darwin: "darwin", windows: "win32" };
const archs = { amd64: "x64", arm64: "arm64" };

const read = (name) => JSON.parse(readFileSync(join(dist, name), "utf8"));
const version = read("metadata.json").version;
const about = {
  version,
  repository: { type: "git", url: "git+https://github.com/toolyard/toolyard.git" },
};

// pack writes a package: its manifest and its files, each as [name inside, source].
function pack(dir, manifest, files) {
  rmSync(join(out, dir), { recursive: true, force: true });
  for (const [name, source] of files) {
    const to = join(out, dir, name);
    mkdirSync(dirname(to), { recursive: true });
    copyFileSync(source, to);
    if (name.startsWith("bin/")) chmodSync(to, 0o755);
  }
  writeFileSync(join(out, dir, "package.json"), JSON.stringify({ ...manifest, ...about }, null, 2) + "\n");
}

// Paths in artifacts.json begin with the name of the directory, as GoReleaser was run beside it.
const optionalDependencies = {};
for (const a of read("artifacts.json").filter((a) => a.type === "Binary" && a.extra?.Binary === "toolyard")) {
  const os = platforms[a.goos], cpu = archs[a.goarch];
  if (!os || !cpu) throw new Error(`npm has no name for ${a.goos}/${a.goarch}`);
  const name = `@toolyard/${os}-${cpu}`, file = `bin/toolyard${os === "win32" ? ".exe" : ""}`;
  pack(`toolyard-${os}-${cpu}`, { name, description: `The program toolyard for ${os}-${cpu}`, os: [os], cpu: [cpu],
    preferUnplugged: true }, [[file, resolve(dist, "..", a.path)]]);
  optionalDependencies[name] = version;
}
const made = Object.keys(optionalDependencies).length, all = Object.keys(platforms).length * Object.keys(archs).length;
if (made !== all) throw new Error(`${dist} has programs for ${made} systems, not ${all}`);
pack("toolyard", { name: "toolyard", description: "Runs the tool calls of AI agents on a pool of workers",
  bin: { toolyard: "bin/toolyard.js" }, engines: { node: ">=18" }, optionalDependencies },
  [["bin/toolyard.js", join(here, "toolyard.js")], ["README.md", join(here, "README.md")]]);
console.log(`${made + 1} packages of ${version} in ${out}`);
