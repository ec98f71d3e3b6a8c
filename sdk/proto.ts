// The generated messages, services and schemas of the contract: package export `codeagent/proto`.
export * from "../gen/codeagent/v1/code_agent_pb.ts";
export * from "../gen/codeagent/v1/mcp_service_pb.ts";
export * from "../gen/codeagent/v1/model_service_pb.ts";
export * from "../gen/codeagent/v1/plan_service_pb.ts";
export * from "../gen/codeagent/v1/schedule_service_pb.ts";
export * from "../gen/codeagent/v1/skill_service_pb.ts";
export * from "../gen/codeagent/v1/tool_service_pb.ts";
