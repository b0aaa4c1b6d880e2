// Requests a cancel from a thread of its own, once `signal` is raised.

import { openLibrary } from "./libmlxx";

declare const self: Worker;

self.onmessage = ({ data: { path, cancel, signal } }) => {
  const mlxx = openLibrary(path);
  const raised = new Int32Array(signal);
  postMessage("ready");
  Atomics.wait(raised, 0, 0);
  Atomics.store(raised, 1, 1 + mlxx.mlxx_cancel_request(cancel));
};
