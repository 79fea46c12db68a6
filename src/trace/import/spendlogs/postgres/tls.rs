//! TLS by rustls, with the checks that libpq's modes stand for.

use std::path::Path;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error as TlsError, RootCertStore,
    SignatureScheme,
};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::diag::{Error, Result};

/// What is checked of the server's certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verify {
    /// Nothing: the line is encrypted, whoever is at its end.
    Nothing,
    /// A known authority signed it.
    Chain,
    /// And it was issued for this host.
    ChainAndName,
}

/// Makes connections that check certificates against the authorities in `roots`, or against those
/// that the system trusts.
pub(super) fn connector(verify: Verify, roots: Option<&Path>) -> Result<MakeRustlsConnect> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let webpki = match verify {
        Verify::Nothing => None,
        Verify::Chain | Verify::ChainAndName => Some(webpki(&provider, roots)?),
    };
    let checks_name = verify == Verify::ChainAndName;
    let verifier = Verifier { provider: Arc::clone(&provider), webpki, checks_name };
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::new(format!("cannot set up TLS: {error}")))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth();
    // What PostgreSQL 17 asks for where TLS begins without a question.
    config.alpn_protocols = vec![b"postgresql".to_vec()];
    Ok(MakeRustlsConnect::new(config))
}

fn webpki(
    provider: &Arc<CryptoProvider>,
    roots: Option<&Path>,
) -> Result<Arc<WebPkiServerVerifier>> {
    let mut store = RootCertStore::empty();
    let failure = match roots {
        Some(path) => add_file(&mut store, path)?,
        None => {
            let found = rustls_native_certs::load_native_certs();
            store.add_parsable_certificates(found.certs);
            "the system's store of certificate authorities is empty"
        }
    };
    if store.is_empty() {
        return Err(Error::new(failure).help("name the file with sslrootcert=FILE"));
    }
    WebPkiServerVerifier::builder_with_provider(Arc::new(store), Arc::clone(provider))
        .build()
        .map_err(|error| Error::new(format!("cannot set up TLS: {error}")))
}

/// Adds the certificates of a PEM file; says what is wrong if there is none.
fn add_file(store: &mut RootCertStore, path: &Path) -> Result<&'static str> {
    let in_file = |error: Error| error.in_file(path.display()).in_field("sslrootcert");
    let text = std::fs::read(path).map_err(|error| in_file(Error::io(path, "read", &error)))?;
    for certificate in CertificateDer::pem_slice_iter(&text) {
        let added = certificate
            .map_err(|error| error.to_string())
            .and_then(|found| store.add(found).map_err(|error| error.to_string()));
        added.map_err(|error| in_file(Error::new(format!("a broken certificate: {error}"))))?;
    }
    Ok("the file of sslrootcert holds no certificate in PEM form")
}

/// Checks as much of a certificate as was asked for, and that the server holds its key.
#[derive(Debug)]
struct Verifier {
    provider: Arc<CryptoProvider>,
    /// Checks the chain, and the name after it.
    webpki: Option<Arc<WebPkiServerVerifier>>,
    checks_name: bool,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> std::result::Result<ServerCertVerified, TlsError> {
        let Some(webpki) = &self.webpki else { return Ok(ServerCertVerified::assertion()) };
        let checked =
            webpki.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
        match checked {
            Err(TlsError::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) if !self.checks_name => Ok(ServerCertVerified::assertion()),
            other => other,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, TlsError> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, TlsError> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
