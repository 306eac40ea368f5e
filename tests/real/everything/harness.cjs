// Loaded into the server's process before the server: it listens on this
// machine only and at a port that is free, says on descriptor 3 which one that
// is, and ends with whoever started it, who holds the other end of its input.
"use strict";
const fs = require("node:fs");
const net = require("node:net");

const listen = net.Server.prototype.listen;
net.Server.prototype.listen = function (_port, ...rest) {
  this.once("listening", () => fs.writeSync(3, `${this.address().port}\n`));
  return listen.call(this, 0, "127.0.0.1", ...rest);
};
process.stdin.on("end", () => process.exit()).resume();
