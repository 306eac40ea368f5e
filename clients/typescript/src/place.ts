import { closeSync, constants, fstatSync, lstatSync, openSync, readlinkSync, readSync } from "node:fs";
import { dirname, isAbsolute, join, resolve } from "node:path";

import { isCounter } from "./binding.js";
import { InputInvalidError, LeaseUnavailableError, SocketUnsafeError } from "./errors.js";

export type Environment = Readonly<Record<string, string | undefined>>;

/** The kernel's bound on the path of a socket, less its final zero. */
const maxSocketPath = 107;

/** Where the broker of this user listens if nothing says otherwise. */
export function defaultSocket(env: Environment): string {
  const below = (dir: string | undefined, name: string) => (dir && isAbsolute(dir) ? join(dir, name) : undefined);
  const directory =
    below(env["XDG_RUNTIME_DIR"], "spendonce") ??
    below(ourRuntimeDirectory(), "spendonce") ??
    below(env["SPENDONCE_STATE_DIR"], "") ??
    below(env["XDG_STATE_HOME"], "spendonce") ??
    below(env["HOME"], ".local/state/spendonce");
  if (directory === undefined) {
    throw new InputInvalidError("nothing says where the broker's socket is: set SPENDONCE_SOCKET");
  }
  return join(directory, "broker.sock");
}

/** The path of a socket as the kernel takes it. */
export function socketPath(path: string): string {
  // Without the slash it could be a name in the abstract namespace, which
  // belongs to nobody.
  if (typeof path !== "string" || !isAbsolute(path) || path.includes("\0")) {
    throw new InputInvalidError("the path of the broker's socket is not absolute");
  }
  const clean = resolve(path);
  if (Buffer.byteLength(clean) > maxSocketPath) {
    throw new InputInvalidError(`the path of the broker's socket has over ${maxSocketPath} bytes, more than the kernel takes`);
  }
  return clean;
}

/**
 * Refuses a socket that another user could have put there: Node does not say
 * who listens, so the names that lead to the socket must be beyond doubt.
 */
export function checkSocket(path: string): void {
  let doubt: string | undefined;
  try {
    doubt = doubtOfDirectory(dirname(path));
    if (doubt === undefined) {
      const socket = lstatSync(path);
      if (!socket.isSocket()) doubt = `${path} is no socket`;
      else if (socket.uid !== user()) doubt = `${path} belongs to user ${socket.uid}`;
    }
  } catch (error) {
    throw unreachable(path, error);
  }
  if (doubt !== undefined) throw new SocketUnsafeError(`${doubt}: nothing is sent to a socket that could be another user's`);
}

/** The error for a socket that nobody listens at, or that cannot be reached. */
export function unreachable(path: string, error: unknown): LeaseUnavailableError {
  const { code } = error as NodeJS.ErrnoException;
  if (code === "ENOENT" || code === "ENOTDIR" || code === "ECONNREFUSED") {
    return new LeaseUnavailableError(
      `no broker is running at ${path}: \`spendonce lease serve\` starts one, and so does \`spendonce lease run -- COMMAND\``,
      { cause: error },
    );
  }
  return new LeaseUnavailableError(`the broker at ${path} cannot be reached (${code ?? "for an unknown reason"})`, { cause: error });
}

/** Reads the generation from a file that only we can have written. */
export function readGeneration(path: string): number {
  if (!isAbsolute(path)) throw new InputInvalidError("SPENDONCE_GENERATION_FILE is not an absolute path");
  const file = resolve(path);
  let text: string;
  try {
    const doubt = doubtOfDirectory(dirname(file));
    if (doubt !== undefined) throw new InputInvalidError(`SPENDONCE_GENERATION_FILE is not to be trusted: ${doubt}`);
    text = readOurs(file);
  } catch (error) {
    if (error instanceof InputInvalidError) throw error;
    const { code } = error as NodeJS.ErrnoException;
    throw new InputInvalidError(`SPENDONCE_GENERATION_FILE, ${file}, cannot be read (${code ?? "for an unknown reason"})`, { cause: error });
  }
  return parseGeneration(text.replace(/\n$/, ""), `the file ${file}`);
}

/** Reads a generation as the protocol spells it. */
export function parseGeneration(text: string, source: string): number {
  const generation = Number(text);
  if (!/^(0|[1-9][0-9]*)$/.test(text) || !isCounter(generation)) {
    throw new InputInvalidError(`${source} holds no generation, an integer from 0 to 2^53-1`);
  }
  return generation;
}

function readOurs(file: string): string {
  const fd = openSync(file, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
  try {
    const found = fstatSync(fd);
    if (!found.isFile() || found.uid !== user() || found.mode & 0o077) {
      throw new InputInvalidError(`SPENDONCE_GENERATION_FILE, ${file}, is not a file of ours that nobody else may use (mode 0600)`);
    }
    const buffer = Buffer.alloc(32);
    return buffer.toString("latin1", 0, readSync(fd, buffer, 0, buffer.length, 0));
  } finally {
    closeSync(fd);
  }
}

/**
 * Why somebody else than us and root could put something in the place of what
 * is in a directory, or undefined. The directory is ours and no link; each one
 * above it is ours or root's, and others write to it only where the sticky bit
 * keeps them from renaming what is not theirs. Links above it are followed,
 * and judged likewise.
 */
function doubtOfDirectory(directory: string): string | undefined {
  const last = lstatSync(directory);
  if (!last.isDirectory()) return `${directory} is no directory, or a link to one`;
  if (last.uid !== user()) return `${directory} belongs to user ${last.uid}`;
  if (last.mode & 0o022) return `others may write to ${directory}`;

  // The kernel has just followed this way, so its links have an end.
  const way = ["/", ...dirname(directory).split("/")];
  let at = "/";
  for (let name = way.shift(); name !== undefined; name = way.shift()) {
    const next = join(at, name);
    const step = lstatSync(next);
    if (step.uid !== 0 && step.uid !== user()) return `${next}, on the way to it, belongs to user ${step.uid}`;
    if (step.isSymbolicLink()) {
      const target = readlinkSync(next);
      way.unshift(...target.split("/"));
      if (isAbsolute(target)) at = "/";
    } else {
      if (step.mode & 0o022 && !(step.mode & 0o1000)) return `others may write to ${next}, which is on the way to it`;
      at = next;
    }
  }
  return undefined;
}

function ourRuntimeDirectory(): string | undefined {
  const directory = `/run/user/${user()}`;
  const found = lstatSync(directory, { throwIfNoEntry: false });
  return found?.isDirectory() && found.uid === user() ? directory : undefined;
}

/** The user that the broker must be of: ours, as the kernel reports it to a peer. */
function user(): number {
  if (process.geteuid === undefined) throw new LeaseUnavailableError("the broker runs on Linux only");
  return process.geteuid();
}
