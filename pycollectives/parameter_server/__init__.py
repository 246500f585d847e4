"""The parameter server (ElasticBSP): weights on servers, gradients of workers, and when who goes on."""
