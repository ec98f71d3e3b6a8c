import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

/** A certificate of its own for localhost and 127.0.0.1, as PEM texts; undefined where openssl is not installed. */
export function makeCertificate(): { cert: string; key: string } | undefined {
  const folder = mkdtempSync(join(tmpdir(), "certificate-"));
  try {
    const [cert, key] = [join(folder, "cert.pem"), join(folder, "key.pem")];
    const curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "1"];
    const name = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"];
    const { status } = spawnSync("openssl", ["req", "-x509", ...curve, ...name, "-keyout", key, "-out", cert]);
    return status === 0 ? { cert: readFileSync(cert, "utf8"), key: readFileSync(key, "utf8") } : undefined;
  } finally {
    rmSync(folder, { recursive: true });
  }
}
