"""Connections to brokers, node selection and cluster metadata; the only folder that holds transports."""
