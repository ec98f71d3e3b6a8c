/** Version of the server and the package. */
export const version = "0.1.0";
