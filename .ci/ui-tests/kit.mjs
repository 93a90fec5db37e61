// What the tests of the web interface share: the browser, processes that end with the test, checks and waiting.
import { spawn } from 'node:child_process';
import { createRequire } from 'node:module';
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

const require = createRequire(join(process.env.UI_MODULES, 'node_modules', 'x.js'));
const { chromium } = require('playwright-core');
export const axe = require('axe-core').source;
const program = process.argv[2];
export const folder = mkdtempSync(join(tmpdir(), 'shoal-ui-'));
const children = [];
let passed = 0;

export const launch = () => chromium.launch({ executablePath: '/usr/bin/chromium', args: ['--no-sandbox', '--disable-gpu'] });
export const steps = () => passed;
export function check(condition, message) {
  if (!condition) throw new Error(message);
  passed += 1;
}
export function start(args, env = {}) {
  const child = spawn(program, args, { cwd: folder, env: { ...process.env, ...env }, stdio: ['ignore', 'pipe', 'pipe'] });
  child.text = '';
  child.stdout.on('data', data => { child.text += data; });
  child.stderr.on('data', data => { child.text += data; });
  children.push(child);
  return child;
}
export const pause = milliseconds => new Promise(done => setTimeout(done, milliseconds));
export async function until(what, wanted, seconds = 90) {
  for (const end = Date.now() + seconds * 1000; Date.now() < end; await pause(100)) {
    const found = await wanted();
    if (found) return found;
  }
  throw new Error('timeout: ' + what);
}
export const freePort = () => new Promise(done => {
  const server = createServer().listen(0, '127.0.0.1', () => { const { port } = server.address(); server.close(() => done(port)); });
});
// Runs a test to its end, and ends what it started.
export async function finish(test) {
  let failed = null;
  try { await test(); } catch (error) { failed = error; }
  for (const child of children) child.kill('SIGTERM');
  await pause(500);
  for (const child of children) if (child.exitCode === null) child.kill('SIGKILL');
  rmSync(folder, { recursive: true, force: true });
  if (!failed) return;
  for (const child of children) console.error(child.text.split('\n').slice(-5).join('\n').replace(/shoal_[a-z0-9]{40}/g, 'shoal_***'));
  // Last, where a reader of the end of a log finds it.
  console.error(String(failed.stack || failed));
  process.exit(1);
}
