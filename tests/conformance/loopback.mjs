// Preloaded into the suite: its mock servers listen on loopback, not on every interface of this machine.
// The address is set below `listen`, which stays synchronous: the suite reads its port right after the call.
import net from "node:net";

const { _listen2: listen } = net.Server.prototype;

net.Server.prototype._listen2 = function (address, port, family, backlog, descriptor, ...rest) {
  const everywhere = address == null && typeof port === "number" && port >= 0 && !(descriptor >= 0);
  return listen.call(this, everywhere ? "127.0.0.1" : address, port, everywhere ? 4 : family, backlog, descriptor, ...rest);
};
