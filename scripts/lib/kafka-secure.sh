# shellcheck shell=bash
# A broker whose clients must say who they are: certificates, users and passwords for `scripts/kafka start --secure`.
# Needs FOLDER/secure to itself. Everything in it is made anew for each broker and good for nothing else.

# The users, by the name of the service that each belongs to.
SECURE_USERS=(planner worker critic cli)
SECURE_DAYS=30

# make_identities FOLDER: an authority, the broker's certificate, and for each user a certificate and a password.
make_identities() {
  local secure=$1/secure user
  need openssl "apt-get install -y openssl"
  mkdir -p "$secure"
  chmod 700 "$secure"
  openssl req -x509 -newkey rsa:2048 -nodes -days $SECURE_DAYS -subj "/CN=Starling development" \
    -keyout "$secure/ca.key" -out "$secure/ca.pem" 2>"$secure/openssl.log"
  certify "$secure" broker "subjectAltName=IP:127.0.0.1,DNS:localhost"
  # Kafka takes a key and its chain from one file.
  cat "$secure/broker.key" "$secure/broker.pem" >"$secure/broker-keystore.pem"
  for user in "${SECURE_USERS[@]}"; do
    certify "$secure" "$user" "extendedKeyUsage=clientAuth"
    openssl rand -hex 16 >"$secure/$user.password"
  done
}

# certify SECURE NAME EXTENSION: a key and a certificate of that name.
certify() {
  openssl req -newkey rsa:2048 -nodes -subj "/CN=$2" -keyout "$1/$2.key" -out "$1/$2.csr" 2>>"$1/openssl.log"
  openssl x509 -req -in "$1/$2.csr" -CA "$1/ca.pem" -CAkey "$1/ca.key" -CAcreateserial -days $SECURE_DAYS \
    -extfile <(echo "$3") -out "$1/$2.pem" 2>>"$1/openssl.log"
  # PKCS 8, as Kafka wants it
  openssl pkcs8 -topk8 -nocrypt -in "$1/$2.key" -out "$1/$2.key8" && mv "$1/$2.key8" "$1/$2.key"
  rm "$1/$2.csr"
}

# scram_options FOLDER: the options by which the formatting tool makes the users, one on each line.
scram_options() {
  local user
  for user in "${SECURE_USERS[@]}"; do
    printf '%s\n' --add-scram "SCRAM-SHA-512=[name=$user,password=$(<"$1/secure/$user.password")]"
  done
}

# secure_settings FOLDER SASL_PORT TLS_PORT: broker properties. The listener without TLS stays as the door of whoever
# runs the broker: it is on the loopback address, and who comes that way may do anything.
secure_settings() {
  local secure=$1/secure
  cat <<PROPERTIES

# Clients on these two must say who they are, and may do only what they were granted.
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:ANONYMOUS
allow.everyone.if.no.acl.found=false
sasl.enabled.mechanisms=SCRAM-SHA-512
listener.name.sasl.scram-sha-512.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
ssl.keystore.type=PEM
ssl.keystore.location=$secure/broker-keystore.pem
ssl.truststore.type=PEM
ssl.truststore.location=$secure/ca.pem
listener.name.tls.ssl.client.auth=required
ssl.principal.mapping.rules=RULE:^CN=(.*)\$/\$1/
PROPERTIES
  echo "127.0.0.1:$2" >"$secure/sasl_ssl"
  echo "127.0.0.1:$3" >"$secure/ssl"
}
