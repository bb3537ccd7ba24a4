// The web worker of the check in the browser. It is sent one request, loads the verifier, and answers with
//   {progress: {done, total, records}}  as it goes on (total 0: not known), then
//   {report: …}                         what internal/inspect found, or
//   {error: text}                       when the check could not be made.
'use strict';

importScripts('wasm_exec.js');

self.onmessage = async ({data}) => {
  try {
    const go = new Go();
    const {instance} = await WebAssembly.instantiateStreaming(fetch('verify.wasm'), go.importObject);
    const ended = go.run(instance).then(() => { throw new Error('the verifier ended before its work'); });
    const progress = (done, total, records) => self.postMessage({progress: {done, total, records}});
    const report = await Promise.race([self.witanVerify(JSON.stringify(data), progress), ended]);
    self.postMessage({report: JSON.parse(report)});
  } catch (err) {
    self.postMessage({error: String(err && err.message || err)});
  }
};
