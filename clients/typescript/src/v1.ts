/** The stubs of `informerd.v1`, for calls that `watch` and `Queue` do not make. */
import type { DescMessage, DescMethod, DescService, MessageShape } from '@bufbuild/protobuf';
import { fromBinary, toBinary } from '@bufbuild/protobuf';
import type { MethodDefinition, ServiceDefinition } from '@grpc/grpc-js';

export * from './generated/informerd/v1/cache_pb.js';
export * from './generated/informerd/v1/objects_pb.js';
export * from './generated/informerd/v1/queue_pb.js';

/** A method as grpc-js takes it, such as `methodOf(Objects.method.get)`. */
export function methodOf<I extends DescMessage, O extends DescMessage>(
  method: DescMethod & { input: I; output: O },
): MethodDefinition<MessageShape<I>, MessageShape<O>> {
  const kind = method.methodKind;
  return {
    path: `/${method.parent.typeName}/${method.name}`,
    requestStream: kind === 'client_streaming' || kind === 'bidi_streaming',
    responseStream: kind === 'server_streaming' || kind === 'bidi_streaming',
    requestSerialize: (message) => Buffer.from(toBinary(method.input, message)),
    requestDeserialize: (bytes) => fromBinary(method.input, bytes),
    responseSerialize: (message) => Buffer.from(toBinary(method.output, message)),
    responseDeserialize: (bytes) => fromBinary(method.output, bytes),
  };
}

/** A service as grpc-js takes it, for `makeClientConstructor` and `Server.addService`. */
export function serviceOf(service: DescService): ServiceDefinition {
  return Object.fromEntries(service.methods.map((method) => [method.localName, methodOf(method)]));
}
