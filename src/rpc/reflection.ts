import { createRegistry, type DescFile, type Registry, toBinary } from "@bufbuild/protobuf";
import { FileDescriptorProtoSchema } from "@bufbuild/protobuf/wkt";
import { Code, type ConnectRouter } from "@connectrpc/connect";
import { ServerReflection } from "../../gen/grpc/reflection/v1/reflection_pb.ts";
import { ServerReflection as ServerReflectionV1alpha } from "../../gen/grpc/reflection/v1alpha/reflection_pb.ts";

/** What v1 and v1alpha have in common: their messages differ in name only. */
type Question =
  | { case: "listServices" | "fileByFilename" | "fileContainingSymbol" | "allExtensionNumbersOfType"; value: string }
  | { case: "fileContainingExtension"; value: { containingType: string; extensionNumber: number } }
  | { case: undefined; value?: undefined };
type Answer =
  | { case: "listServicesResponse"; value: { service: { name: string }[] } }
  | { case: "fileDescriptorResponse"; value: { fileDescriptorProto: Uint8Array[] } }
  | { case: "allExtensionNumbersResponse"; value: { baseTypeName: string; extensionNumber: number[] } }
  | { case: "errorResponse"; value: { errorCode: number; errorMessage: string } };

/** The files the server offers and, with their imports, all it knows. */
interface Index {
  services: string[];
  files: ReadonlyMap<string, DescFile>;
  types: Registry;
}

/** Registers gRPC server reflection, v1 and v1alpha, for the services of the given files. */
export function reflectionRoutes(files: readonly DescFile[]): (router: ConnectRouter) => void {
  const all = withImports(files);
  const index: Index = {
    services: files.flatMap((file) => file.services.map((service) => service.typeName)).sort(),
    files: new Map(all.map((file) => [file.proto.name, file])),
    types: createRegistry(...all),
  };
  async function* answers<Request extends { host: string; messageRequest: Question }>(
    requests: AsyncIterable<Request>,
  ) {
    for await (const request of requests) {
      yield {
        validHost: request.host,
        originalRequest: request,
        messageResponse: answer(index, request.messageRequest),
      };
    }
  }
  return (router) => {
    router.service(ServerReflection, { serverReflectionInfo: answers });
    router.service(ServerReflectionV1alpha, { serverReflectionInfo: answers });
  };
}

/** The files and everything they import, the given ones first. */
function withImports(files: readonly DescFile[]): DescFile[] {
  const found = new Set(files);
  for (const file of found) for (const dependency of file.dependencies) found.add(dependency);
  return [...found];
}

function answer({ services, files, types }: Index, question: Question): Answer {
  switch (question.case) {
    case "listServices":
      return { case: "listServicesResponse", value: { service: services.map((name) => ({ name })) } };
    case "fileByFilename":
      return fileAnswer(files.get(question.value));
    case "fileContainingSymbol":
      return fileAnswer(fileOfSymbol(types, question.value));
    case "fileContainingExtension": {
      const extendee = types.getMessage(question.value.containingType);
      return fileAnswer(extendee && types.getExtensionFor(extendee, question.value.extensionNumber)?.file);
    }
    case "allExtensionNumbersOfType": {
      const baseTypeName = question.value;
      if (types.getMessage(baseTypeName) === undefined) return notFound();
      const extensionNumber: number[] = [];
      for (const type of types) {
        if (type.kind === "extension" && type.extendee.typeName === baseTypeName) extensionNumber.push(type.number);
      }
      return { case: "allExtensionNumbersResponse", value: { baseTypeName, extensionNumber } };
    }
    case undefined:
      return {
        case: "errorResponse",
        value: { errorCode: Code.InvalidArgument, errorMessage: "the request asks nothing" },
      };
    default:
      return question satisfies never;
  }
}

/** Fields, methods and enum values are found in the file of the type that holds them. */
function fileOfSymbol(types: Registry, symbol: string): DescFile | undefined {
  const type = types.get(symbol);
  if (type !== undefined) return type.file;
  const [, parent, member] = /^(.+)\.([^.]+)$/.exec(symbol) ?? [];
  const holder = parent === undefined ? undefined : types.get(parent);
  switch (holder?.kind) {
    case "message":
      return [...holder.fields, ...holder.oneofs].some(({ name }) => name === member) ? holder.file : undefined;
    case "service":
      return holder.methods.some(({ name }) => name === member) ? holder.file : undefined;
    case "enum":
      return holder.values.some(({ name }) => name === member) ? holder.file : undefined;
    default:
      return undefined;
  }
}

function fileAnswer(file: DescFile | undefined): Answer {
  if (file === undefined) return notFound();
  const fileDescriptorProto = withImports([file]).map((each) => toBinary(FileDescriptorProtoSchema, each.proto));
  return { case: "fileDescriptorResponse", value: { fileDescriptorProto } };
}

function notFound(): Answer {
  return { case: "errorResponse", value: { errorCode: Code.NotFound, errorMessage: "no such symbol or file" } };
}
