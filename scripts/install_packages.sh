#!/usr/bin/env bash
# Installs the packages that building needs, on Debian 12 and Ubuntu 24.04. Nothing to do where all are there.
#
#   ./scripts/install_packages.sh         what ./scripts/quickstart.sh and ./scripts/test.sh need
#   ./scripts/install_packages.sh --ci    also what .ci/run checks with
#
# Needs root or sudo, and asks nothing. KATA_INSTALL=OFF skips it all: for systems where the libraries were
# installed in another way.
set -euo pipefail

packages=(g++ cmake ninja-build pkg-config git gzip libopenblas-dev libyaml-cpp-dev libspdlog-dev libfmt-dev
  libcli11-dev nlohmann-json3-dev libsentencepiece-dev libicu-dev libgtest-dev)
ci_packages=(python3 clang-format-14 clang libclang-rt-dev libomp-dev ccache)

fail() {
  echo "install_packages.sh: error: $*" >&2
  exit 1
}

case "${1:-}" in
  "") ;;
  --ci) packages+=("${ci_packages[@]}") ;;
  *) fail "unknown argument '$1'; expected nothing or --ci" ;;
esac
[ "${KATA_INSTALL:-ON}" != OFF ] || exit 0

name=$(. /etc/os-release 2>/dev/null && echo "${PRETTY_NAME:-}") || name=""
advice="install the equivalents of: ${packages[*]}; then run again with KATA_INSTALL=OFF"
command -v apt-get >/dev/null || fail "${name:-this system} has no apt-get; $advice"

missing=()
for package in "${packages[@]}"; do
  status=$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null) || status=none
  [ "$status" = installed ] || missing+=("$package")
done
[ ${#missing[@]} -gt 0 ] || exit 0

case "$(. /etc/os-release && echo "${ID:-} ${VERSION_ID:-}")" in
  "debian 12" | "ubuntu 24.04") ;;
  *) fail "${name:-this system} is neither Debian 12 nor Ubuntu 24.04; $advice" ;;
esac

as_root=()
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null || fail "neither root nor sudo here; as root: apt-get install ${missing[*]}"
  as_root=(sudo)
  [ -t 0 ] || sudo -n true 2>/dev/null ||
    fail "sudo asks for a password and there is no terminal; as root: apt-get install ${missing[*]}"
fi

log=$(mktemp)
trap 'rm -f "$log"' EXIT
apt_get() {
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0 \
    "$@" </dev/null >>"$log" 2>&1
}
echo "installing ${missing[*]}"
apt_get update || true  # one broken source must not stop what the others have
if ! apt_get install --yes --no-install-recommends "${missing[@]}"; then
  tail -n 20 "$log" >&2
  fail "apt-get failed, its last lines are above; check the network and the package sources; wanted: ${missing[*]}"
fi
