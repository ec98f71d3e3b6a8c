export { type Feature, features } from "../chat/feature.ts";
