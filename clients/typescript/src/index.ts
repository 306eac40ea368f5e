export { LeaseClient } from "./client.js";
export type { CallOptions, LeaseOptions } from "./client.js";
export type { Binding } from "./binding.js";
export { Session } from "./session.js";
export {
  AnswerInvalidError,
  InputInvalidError,
  LeaseError,
  LeaseUnavailableError,
  OutcomeUnknownError,
  RefusedError,
  SocketUnsafeError,
} from "./errors.js";
export type { LeaseCode, LocalCode, RefusalCode } from "./errors.js";
