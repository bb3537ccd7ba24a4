// Runs verify-worker.js outside of a browser: node worker.mjs FOLDER, with a JSON array of requests on standard input. Writes the last answer to
// each request, and the number of progress messages before it, as a line of JSON.
import {readFileSync} from 'node:fs';
import {join} from 'node:path';
import {runInThisContext} from 'node:vm';

const folder = process.argv[2];
const read = name => readFileSync(join(folder, name));
const net = globalThis.fetch;
globalThis.self = globalThis;
globalThis.importScripts = name => runInThisContext(read(name).toString(), {filename: name});
globalThis.fetch = (url, options) => url === 'verify.wasm'
  ? Promise.resolve(new Response(read(url), {headers: {'Content-Type': 'application/wasm'}}))
  : net(url, options);

for (const request of JSON.parse(readFileSync(0).toString())) {
  let told = 0;
  const answer = new Promise(resolve => {
    globalThis.postMessage = message => { if (message.progress) told++; else resolve(message); };
  });
  importScripts('verify-worker.js');
  await self.onmessage({data: request});
  process.stdout.write(JSON.stringify({...await answer, told}) + '\n');
}
process.exit(0); // the programs wait for ever
