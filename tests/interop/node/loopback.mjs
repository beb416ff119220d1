// Preloaded into servers that listen on every interface: without a host they bind to 127.0.0.1.
// The patched step is the last one before the bind, so `listen` stays as synchronous as it was.
import { Server } from 'node:net';

const bind = Server.prototype._listen2;
if (typeof bind !== 'function') throw new Error('this Node has no Server._listen2 to patch');
Server.prototype._listen2 = function (address, port, family, ...rest) {
  const anywhere = address === null || address === undefined || address === '::' || address === '0.0.0.0';
  if (anywhere && Number.isInteger(port) && port >= 0) return bind.call(this, '127.0.0.1', port, 4, ...rest);
  return bind.call(this, address, port, family, ...rest);
};
