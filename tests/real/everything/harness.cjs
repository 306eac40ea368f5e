// Loaded into the server's process before the server: it listens on this
// machine only and at a port that is free, says on descriptor 3 which one that
// is, and ends with whoever started it, who holds the other end of its input.
"use strict";
const diagnostics = require("node:diagnostics_channel");
const fs = require("node:fs");
const net = require("node:net");

const listen = net.Server.prototype.listen;
net.Server.prototype.listen = function (_port, ...rest) {
  this.once("listening", () => fs.writeSync(3, `${this.address().port}\n`));
  return listen.call(this, 0, "127.0.0.1", ...rest);
};
process.stdin.on("end", () => process.exit()).resume();

// 350 ms after the handshake the server asks its client for roots, on a stream
// that the client has opened meanwhile; it never learns of it where the client
// is slower than that. So that this is no matter of luck on a busy machine, the
// 350 ms begin when somebody has asked for such a stream.
const rootsDelay = 350;
const streamAsked = new Promise((resolve) => {
  diagnostics.subscribe("http.server.request.start", ({ request }) => {
    if (request.method === "GET") resolve();
  });
});
const timeout = globalThis.setTimeout;
globalThis.setTimeout = function (callback, delay, ...args) {
  if (delay !== rootsDelay) return timeout(callback, delay, ...args);
  streamAsked.then(() => timeout(callback, delay, ...args));
  return undefined;
};
