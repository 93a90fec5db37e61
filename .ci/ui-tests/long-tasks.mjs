// The longest task of the main thread of a page while it is opened and while 20 events make it read itself again. Printed, never judged.
// A page whose script has a loop of 60 ms must be reported: a measurement that cannot see a long task proves nothing.
// Usage: UI_ONLY=long-tasks.mjs .ci/ui PROGRAM URL COOKIE PROOF SERIAL
import { check, finish, launch, pause } from './kit.mjs';

const [url, cookie, proof, serial] = process.argv.slice(3), AIM = 50, EVENTS = 20;
async function change(on) {
  const headers = { cookie, 'x-csrf-token': proof, 'content-type': 'application/json' };
  const response = await fetch(`${url}/api/v1/servers/${serial}/maintenance`, { method: on ? 'POST' : 'DELETE', headers, body: on ? '{}' : undefined });
  if (!response.ok) throw new Error(`maintenance: ${response.status} ${await response.text()}`);
}
async function longest(browser, place, loop) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 800 } });
  const [name, value] = cookie.split(/=(.*)/);
  await context.addCookies([{ name, value, domain: '127.0.0.1', path: '/', secure: true }]);
  const page = await context.newPage();
  await page.addInitScript(() => {
    window.tasks = [];
    new PerformanceObserver(list => window.tasks.push(...list.getEntries().map(one => one.duration))).observe({ type: 'longtask', buffered: true });
  });
  // At each reading of the page, as a slow replacement would be.
  if (loop) {
    await page.route('**/ui/assets/*.js', async route => {
      const response = await route.fetch(), text = await response.text(), from = 'function replace(page) {\n';
      check(text.split(from).length === 2, 'the loop has no place in the script');
      await route.fulfill({ response, body: text.replace(from, `${from}  for (const end = performance.now() + ${loop}; performance.now() < end;);\n`) });
    });
  }
  await page.goto(url + place);
  await page.locator('.live[data-state=live]').waitFor();
  await pause(500);
  const tasks = () => page.evaluate(() => window.tasks), opened = await tasks();
  for (let at = 0; at < EVENTS; at += 1) { await change(at % 2 === 0); await pause(250); }
  await pause(1500);
  const all = await tasks(), reads = await page.evaluate(() => performance.getEntriesByType('resource').filter(one => one.initiatorType === 'fetch' && one.name === location.href).length);
  check(reads > 2, `${place}: ${reads} readings of the page after ${EVENTS} events`);
  await context.close();
  return { opened: Math.max(0, ...opened), live: Math.max(0, ...all.slice(opened.length)), reads };
}

await finish(async () => {
  const browser = await launch();
  try {
    const words = duration => duration ? `${Math.round(duration)} ms` : `none over ${AIM} ms`;
    for (const place of ['/ui/', '/ui/jobs', '/ui/servers']) {
      const { opened, live, reads } = await longest(browser, place, 0);
      console.log(`${place}: longest task ${words(opened)} while it is opened, ${words(live)} in ${reads} readings after ${EVENTS} events; aim ${AIM} ms`);
    }
    const { live } = await longest(browser, '/ui/servers', 60);
    check(live >= 60, `the measurement cannot fail: a loop of 60 ms in the script is reported as ${words(live)}`);
    console.log(`a loop of 60 ms in the script is reported: ${words(live)}`);
  } finally { await browser.close(); }
});
