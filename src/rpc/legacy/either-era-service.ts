import { CodeAgentService } from "../../../gen/a3s/code/agent/v1/code_agent_pb.ts";
import { EitherEraService } from "../../../gen/codeagent/legacy/v1/either_era_pb.ts";

const ownNames = new Set(EitherEraService.methods.map(({ name }) => name));

/** The earlier service without the methods whose messages differ between the eras of its clients. */
export const sharedMethods: typeof CodeAgentService = {
  ...CodeAgentService,
  methods: CodeAgentService.methods.filter(({ name }) => !ownNames.has(name)),
};

/** The others, at the same paths, with messages that fit both eras. */
export const eitherEraMethods: typeof EitherEraService = {
  ...EitherEraService,
  typeName: CodeAgentService.typeName,
  methods: EitherEraService.methods.map((method) => ({ ...method, parent: CodeAgentService })),
};
